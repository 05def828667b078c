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
// on a Session. Ends exactly once, by its promise. Thread: any until it is submitted, then the
// loop.
class PeerOperation : public std::enable_shared_from_this<PeerOperation>, public OperationRecord {
 public:
  PeerOperation() = default;
  virtual ~PeerOperation() = default;

  // Runs the operation on a connection that is ready.
  virtual void start(Session& session) = 0;
  // Ends the operation with an error.
  virtual void fail(Status reason) = 0;
  // Returns whether the operation makes the agent connect to the peer. If not, the operation waits
  // until another operation or the peer connects.
  [[nodiscard]] virtual bool connects() const { return true; }
  // Returns the longest wait for a connection. The deadline may end the wait earlier.
  [[nodiscard]] virtual Nanos patience() const { return Nanos::max(); }
  // Returns the operation's share of the loop's work; a short operation has 1.
  [[nodiscard]] virtual std::size_t weight() const { return 1; }

  // Ends the operation with kCancelled, if it can still be taken back.
  void cancel();

  // ---- for info()
  // Returns a description such as "call cache.get" or "connect".
  [[nodiscard]] virtual std::string describe() const = 0;
  // Returns the peer's name: while the operation waits, the name that the user gave; while it runs,
  // the name of the connected peer.
  [[nodiscard]] const std::string& peer() const;
  // Returns a text such as "waits for a connection" or "under way".
  [[nodiscard]] std::string_view stage() const;

  TimePoint began{};
  TimePoint deadline = kNever;
  bool wait_for_ready = false;

 protected:
  // Returns false while the operation waits for room on its connection.
  [[nodiscard]] virtual bool taken() const { return true; }
  // Asks the session to end this running operation early.
  virtual void cancel_started(Session&) {}
  // Returns the status for the user: kUnavailable instead of kCancelled if the session was closed
  // although the user did not ask for it.
  [[nodiscard]] Status outcome(Status status) const;

 private:
  bool cancelled_ = false;
};

template <class T>
class ResultOperation : public PeerOperation {
 public:
  explicit ResultOperation(std::shared_ptr<Driver> driver) : promise_(std::move(driver)) {}
  // Leaves the table before promise_ is destroyed: promise_ owns the driver, which has the counter.
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
  // Completes the future with the result of `make`, which runs in the thread that takes the value.
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
