#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "agent/admission.h"
#include "agent/agent_driver.h"
#include "agent/operations/operation_record.h"
#include "base/block_pool.h"
#include "base/clock.h"
#include "base/function.h"
#include "base/future.h"
#include "base/result.h"
#include "rpc/payload.h"
#include "transport/loop.h"

namespace slime::agent {

class Session;

// One operation that a user asks of a peer. Waits in a Link until there is a connection, then runs
// on a Session. Ends exactly once. Thread: any until it is submitted, then the loop.
class PeerOperation : public OperationRecord {
 public:
  PeerOperation() = default;
  virtual ~PeerOperation() = default;

  // For OperationPtr.
  void hold() { ++holders_; }
  void let_go() {
    if (--holders_ == 0) retire();
  }

  // Runs the operation on a connection that is ready.
  virtual void start(Session& session) = 0;
  // Ends the operation with an error.
  virtual void fail(Status reason) = 0;
  // Returns whether the operation makes the agent connect to the peer. If not, the operation waits
  // until another operation or the peer connects.
  [[nodiscard]] virtual bool connects() const { return true; }
  // Returns the longest wait for a connection. The deadline may end the wait earlier.
  [[nodiscard]] virtual Nanos patience() const { return Nanos::max(); }
  // Returns whether the operation counts as in flight. One that may wait without end does not.
  [[nodiscard]] virtual bool counts() const { return true; }

  // Sets the begin of the operation and its deadline. `coarse`: by Clock::coarse_now(), if timeout
  // and patience are long. Call before the operation is submitted.
  void begin(const transport::Loop& loop, Nanos timeout, bool coarse);
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

  TimePoint began{};  // may be a little too early: see Clock::coarse_now()
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
  // Destroys the operation. Called when the last OperationPtr is gone.
  virtual void retire() noexcept = 0;

  unsigned holders_ = 0;
  bool cancelled_ = false;
};

// The future's part of the record of an operation: see make_operation().
template <class T>
class ResultState : public slime::detail::FutureState<T> {
 public:
  // `drives`: whether threads that wait for the future drive the agent's loop.
  ResultState(std::shared_ptr<AgentDriver> agent, bool drives)
      : slime::detail::FutureState<T>(std::move(agent), drives) {}
  bool operation_alive = true;  // thread: that of the operation

 protected:
  ~ResultState() = default;
  // Null only in tests.
  [[nodiscard]] AgentDriver* agent() const { return static_cast<AgentDriver*>(this->any_driver().get()); }
};

template <class T>
class ResultOperation : public PeerOperation {
 public:
  using State = ResultState<T>;
  explicit ResultOperation(State& state) : state_(state) {}
  // Leaves the table before the state is released: its driver has the counter.
  ~ResultOperation() override { leave(); }
  // Returns the operation's future. Call before the operation is submitted.
  Future<T> future() const {
    state_.add_first_future();
    return Future<T>(slime::detail::FutureRef(&state_));
  }
  void fail(Status reason) override {
    reason = outcome(std::move(reason));
    end_run();
    state_.fail(std::move(reason));
  }

 protected:
  void conclude(Result<T>&& result) {
    if (!result) result = outcome(std::move(result).error());
    end_run();
    state_.complete(std::move(result));
  }
  void succeed(T value) {
    end_run();
    state_.succeed(std::move(value));
  }
  // Completes the future with the result of `make`, which runs in the thread that takes the value.
  void conclude_with(UniqueFunction<Result<T>()> make) {
    end_run();
    state_.complete_with(std::move(make));
  }
  [[nodiscard]] State& result_state() const { return state_; }

 private:
  void retire() noexcept final {
    State& state = state_;
    state.operation_alive = false;
    std::destroy_at(this);
    state.abandon();
  }

  State& state_;
};

// The record of one operation, in one block of memory: the operation, which ends with its last
// OperationPtr, and the state of its future, which ends with the operation and the last future.
template <class Operation>
class OperationBlock final : public Operation::State {
 public:
  template <class... A>
  static OperationPtr<Operation> make(std::shared_ptr<AgentDriver> agent, bool drives, A&&... arguments) {
    auto* const block = new OperationBlock(std::move(agent), drives, std::forward<A>(arguments)...);
    return OperationPtr<Operation>(&block->operation_);
  }
  static void* operator new(std::size_t bytes) { return take_pooled(bytes); }
  static void operator delete(void* block, std::size_t bytes) { give_pooled(block, bytes); }

 private:
  template <class... A>
  OperationBlock(std::shared_ptr<AgentDriver> agent, bool drives, A&&... arguments)
      : Operation::State(std::move(agent), drives), operation_(*this, std::forward<A>(arguments)...) {}
  ~OperationBlock() {}  // the operation was destroyed before

  void destroy() noexcept override { delete this; }
  // Cancels the operation on the loop, unless it has ended by then.
  void ask_to_cancel() override {
    AgentDriver* const agent = this->agent();
    if (agent == nullptr) return;
    const Admission::Pass pass(agent->admission());
    if (!pass) return;  // closing ends the operation anyway
    this->add_future();
    agent->loop().dispatch([this, future = slime::detail::FutureRef(this)] {
      if (!this->operation_alive) return;
      // keeps the operation alive in cancel()
      const OperationPtr<Operation> operation(&operation_);
      operation->cancel();
    });
  }

  union {
    Operation operation_;
  };
};

// Makes an operation and the state of its future. `drives`: whether threads that wait for the
// future drive the agent's loop. `arguments`: of the operation's constructor, after the state.
template <class Operation, class... A>
OperationPtr<Operation> make_operation(std::shared_ptr<AgentDriver> agent, bool drives, A&&... arguments) {
  return OperationBlock<Operation>::make(std::move(agent), drives, std::forward<A>(arguments)...);
}

// These may end a reference to a PeerOperation, so they need its definition.
inline OperationRecord::~OperationRecord() { leave(); }
inline void OperationRecord::keep(OperationPtr<PeerOperation> self) { kept_ = std::move(self); }
inline OperationPtr<PeerOperation> OperationRecord::released() { return std::move(kept_); }

inline Result<None> none_or(Status status) {
  if (!status.ok()) return status;
  return None{};
}

}  // namespace slime::agent
