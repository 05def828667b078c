#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "agent/operations/operation_record.h"
#include "base/clock.h"
#include "base/function.h"
#include "base/future.h"
#include "base/result.h"
#include "rpc/payload.h"

namespace slime::agent {

class Session;

// One operation that a user asks of a peer. Waits in a Link until there is a connection, then runs
// on a Session. Ends exactly once, by its promise. Thread: any for its making, then the loop.
class PeerOperation : public std::enable_shared_from_this<PeerOperation>, public OperationRecord {
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

 private:
  bool cancelled_ = false;
};

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
