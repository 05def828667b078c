#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/operations/operation_list.h"
#include "base/clock.h"
#include "base/function.h"
#include "base/future.h"
#include "base/result.h"
#include "rpc/payload.h"
#include "transport/loop.h"

namespace slime::agent {

class Session;
class WaitingOperations;

// One operation that a user asks of a peer. Waits in a Link until there is a connection, then runs
// on a Session. Ends exactly once, by its promise. Thread: any for its making, then the loop.
class PeerOperation : public std::enable_shared_from_this<PeerOperation>, public Listed {
 public:
  PeerOperation() = default;
  virtual ~PeerOperation() = default;

  // Runs the operation on a connection that is ready.
  virtual void start(Session& session) = 0;
  // Ends the operation with an error.
  virtual void fail(Status reason) = 0;
  // Returns whether the operation makes its peer be connected. If not, it waits until another
  // operation or the peer connects.
  [[nodiscard]] virtual bool connects() const { return true; }
  // How long the operation waits for a connection at most, besides its deadline.
  [[nodiscard]] virtual Nanos patience() const { return Nanos::max(); }
  // The share of the loop's work, in short operations.
  [[nodiscard]] virtual std::size_t weight() const { return 1; }

  // Ends the operation with kCancelled, if it can still be taken back.
  void cancel();

  // ---- for info()
  // "call cache.get", "read of 3 blocks".
  [[nodiscard]] virtual std::string describe() const = 0;
  // The peer's name, as the user named it while the operation waits.
  [[nodiscard]] const std::string& peer() const;
  // "waits for a connection", "under way".
  [[nodiscard]] std::string_view stage() const;

  TimePoint began{};
  TimePoint deadline = kNever;
  bool wait_for_ready = false;

 protected:
  // False while the operation waits for room on its connection.
  [[nodiscard]] virtual bool taken() const { return true; }
  // Asks for an early end of an operation that runs on the session.
  virtual void cancel_started(Session&) {}
  // Returns what the user is told for a status of the session.
  [[nodiscard]] Status outcome(Status status) const;
  void set_running(Session* session) { session_ = session; }
  [[nodiscard]] Session* running() const { return session_; }

 private:
  friend class WaitingOperations;
  WaitingOperations* waiting_ = nullptr;  // the list that the operation is in, if any
  std::list<std::shared_ptr<PeerOperation>>::iterator place_;
  transport::TimerId timer_;    // ends the wait
  Session* session_ = nullptr;  // that the operation runs on
  bool cancelled_ = false;
};

// The operations that wait for a connection to one peer, in order. Thread: the loop.
class WaitingOperations {
 public:
  using Late = UniqueFunction<void(std::shared_ptr<PeerOperation>)>;

  // `peer` is the name that the user gave.
  WaitingOperations(transport::Loop& loop, std::string peer) : loop_(loop), peer_(std::move(peer)) {}
  WaitingOperations(const WaitingOperations&) = delete;
  WaitingOperations& operator=(const WaitingOperations&) = delete;
  ~WaitingOperations();

  // Appends an operation. At `until` takes it out and calls `late` with it.
  void add(std::shared_ptr<PeerOperation> operation, TimePoint until, Late late);
  // Takes out an operation that is here.
  std::shared_ptr<PeerOperation> withdraw(PeerOperation& operation);
  // Takes out the first one.
  std::shared_ptr<PeerOperation> take_first() { return withdraw(*operations_.front()); }
  // Takes out, in order, the operations for which wanted(const PeerOperation&) is true.
  template <class F>
  std::vector<std::shared_ptr<PeerOperation>> take_if(F&& wanted);

  [[nodiscard]] bool empty() const { return operations_.empty(); }
  [[nodiscard]] std::size_t size() const { return operations_.size(); }
  [[nodiscard]] const std::string& peer() const { return peer_; }
  // Whether an operation here makes its peer be connected.
  [[nodiscard]] bool any_connects() const;

 private:
  transport::Loop& loop_;
  const std::string peer_;
  std::list<std::shared_ptr<PeerOperation>> operations_;
};

template <class F>
std::vector<std::shared_ptr<PeerOperation>> WaitingOperations::take_if(F&& wanted) {
  std::vector<std::shared_ptr<PeerOperation>> out;
  for (auto it = operations_.begin(); it != operations_.end();) {
    PeerOperation& operation = **it++;
    if (wanted(static_cast<const PeerOperation&>(operation))) out.push_back(withdraw(operation));
  }
  return out;
}

template <class T>
class ResultOperation : public PeerOperation {
 public:
  explicit ResultOperation(std::shared_ptr<Driver> driver) : promise_(std::move(driver)) {}
  // Before promise_, which owns the driver: the driver has the count.
  ~ResultOperation() override { leave(); }
  Future<T> future() const { return promise_.future(); }
  Promise<T>& promise() { return promise_; }
  void fail(Status reason) override { conclude(std::move(reason)); }

 protected:
  void conclude(Result<T> result) {
    if (!result) result = outcome(std::move(result).error());
    end_run();
    promise_.complete(std::move(result));
  }
  // Completes with the result of `make`, which runs in the thread that takes the value.
  void conclude_with(UniqueFunction<Result<T>()> make) {
    end_run();
    promise_.complete_with(std::move(make));
  }

 private:
  void end_run() {
    set_running(nullptr);
    leave();
  }
  Promise<T> promise_;
};

// Copies a received payload out of its receive slot: the slot belongs to the port, which ends with
// the agent, and a slot that the user keeps would hold up the peer.
inline Result<rpc::Payload> detached(Result<rpc::Payload> payload) {
  if (payload) payload->detach();
  return payload;
}
inline Result<None> none_or(Status status) {
  if (!status.ok()) return status;
  return None{};
}

}  // namespace slime::agent
