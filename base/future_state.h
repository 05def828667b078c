#pragma once

// Private to base, and to layers whose operations are futures: what futures and their promise
// share.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/block_pool.h"
#include "base/clock.h"
#include "base/function.h"
#include "base/mutex.h"
#include "base/result.h"

namespace slime {

// Makes progress in a thread that waits for a future, for example by driving a Loop.
class Driver {
 public:
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  virtual ~Driver() = default;
  // Returns when done() is true or the deadline has passed. `sleep` waits for the same two events,
  // but makes no progress: a driver with a thread of its own may call it. Thread: any, several at
  // once; not from a loop callback.
  virtual void wait(UniqueFunction<bool()> done, TimePoint deadline, Task sleep) = 0;
};

namespace detail {

// The part of a future's state that does not depend on the type of its value: whether it is done,
// the threads and callbacks that wait, and cancelling. Owned by its producer (a Promise, or an
// operation) and by its futures; freed when both are gone. Takes a lock only where a thread sleeps,
// where a future has several callbacks, and for set_cancel(). Thread: any, unless stated otherwise.
class FutureCore {
 public:
  // `driver`: may be null. `drives`: whether waiting threads use the driver.
  explicit FutureCore(std::shared_ptr<Driver> driver, bool drives = true)
      : driver_(std::move(driver)), drives_(drives) {}
  FutureCore(const FutureCore&) = delete;
  FutureCore& operator=(const FutureCore&) = delete;

  [[nodiscard]] bool done() const { return (word_.load(std::memory_order_acquire) & kSettled) != 0; }
  // The driver of threads that wait for the future; null: they sleep.
  [[nodiscard]] std::shared_ptr<Driver> driver() const { return drives_ ? driver_ : nullptr; }
  bool wait_done(Nanos timeout);
  void on_done(Task callback);
  // Asks for an early end, once.
  void cancel();
  // Returns a label for error texts, such as "calc.add"; empty: none.
  [[nodiscard]] virtual std::string label() const { return {}; }

  // ---- futures
  // Adds the first future; the producer calls this.
  void add_first_future();
  void add_future() { futures_.fetch_add(1, std::memory_order_relaxed); }
  void drop_future();

  // ---- a thread that completes many futures
  // From begin_burst() to end_burst(), completing a future wakes no thread that sleeps until it is
  // done: wake_sleepers() wakes those threads. Callbacks are called at once, outside of the burst.
  // Pairs may be nested. After the last end_burst(), call wake_sleepers().
  static void begin_burst() { ++late_.depth; }
  static void end_burst() { --late_.depth; }
  static void wake_sleepers() {
    while (late_.count != 0) wake_all();
  }
  // Interrupts the burst of the calling thread, for a call of a user's function, which may take a
  // lock that a sleeping thread holds.
  class OutsideBurst {
   public:
    OutsideBurst() : depth_(std::exchange(late_.depth, 0)) { wake_sleepers(); }
    OutsideBurst(const OutsideBurst&) = delete;
    OutsideBurst& operator=(const OutsideBurst&) = delete;
    ~OutsideBurst() { late_.depth = depth_; }

   private:
    const unsigned depth_;
  };

  // ---- the producer, one thread at a time
  // Sets the function that cancel() calls. Completion drops the function.
  void set_cancel(Task cancel);
  // Makes cancel(), and dropping the last future, destroy an outcome that was not taken; the
  // destroyed outcome returns its message. Call before sharing the state.
  void give_back_untaken();
  // Ends the producer's ownership.
  void drop_producer() { drop_holder(); }

 protected:
  ~FutureCore() = default;

  // Makes the stored outcome visible. `failed`: the outcome is an error.
  void settle(bool failed);
  // Settles a new state that no other thread has, adds its only future, and ends the producer's
  // ownership. Takes no atomic operation.
  void begin_settled(bool failed) {
    word_.store(kSettled | (failed ? kFailed : 0), std::memory_order_relaxed);
    futures_.store(1, std::memory_order_relaxed);  // holders_ counts the futures instead of the producer
  }
  enum class Take { kNow, kGivenBack, kTwice };
  // Claims the outcome for the caller. Call only after done().
  Take claim();

  [[nodiscard]] const std::shared_ptr<Driver>& any_driver() const { return driver_; }

 private:
  // The producer's outcome in the derived class.
  virtual void drop_outcome() = 0;
  // Asks the producer for an early end; called at most once, and never after settle() has returned
  // to the producer, except by overrides which say so.
  virtual void ask_to_cancel();
  // Destroys and frees the object.
  virtual void destroy() noexcept = 0;

  // Futures that the calling thread has completed in its burst while other threads slept.
  static constexpr std::size_t kLateWakes = 64;
  struct Late {
    unsigned depth;
    std::uint64_t process;  // fork_generation() of the futures
    std::size_t count;
    std::array<FutureCore*, kLateWakes> futures;
  };
  static void wake_all();
  static inline constinit thread_local Late late_{};

  bool sleep(TimePoint deadline);
  void tell(std::uint32_t word);
  void wake(CondVar& sleepers);
  void drop_holder();

  // bits of word_
  static constexpr std::uint32_t kSettled = 1;     // the outcome is there
  static constexpr std::uint32_t kFailed = 2;      // the outcome is an error
  static constexpr std::uint32_t kTaken = 4;       // a thread has taken the outcome
  static constexpr std::uint32_t kGivenBack = 8;   // cancel() has destroyed the outcome
  static constexpr std::uint32_t kCancelled = 16;  // cancel() came first
  static constexpr std::uint32_t kSlot = 32;       // callback_ is being stored
  static constexpr std::uint32_t kCallback = 64;   // callback_ is stored
  static constexpr std::uint32_t kLocked = 128;    // a thread sleeps, or more_ or cancel_ is set

  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::uint32_t> futures_{0};
  std::atomic<std::uint32_t> holders_{1};  // the producer, and all futures together
  const std::shared_ptr<Driver> driver_;
  const bool drives_;
  bool gives_back_ = false;    // set before the state is shared
  std::uint64_t process_ = 0;  // fork_generation() where gives_back_ is true
  Task callback_;              // owned by the thread that set kSlot, then by the one that settles
  Mutex mutex_;
  // Made by the first thread that sleeps, because destroying it takes an atomic operation.
  // Does not change once kLocked is seen with kSettled.
  std::optional<CondVar> changed_;
  std::vector<Task> more_ SLIME_GUARDED_BY(mutex_);
  Task cancel_ SLIME_GUARDED_BY(mutex_);
};

// A FutureCore with its outcome.
template <class T>
class FutureState : public FutureCore {
 public:
  using FutureCore::FutureCore;

  // Completes the future. Returns false, and drops `result`, if it was completed before. Thread:
  // the producer's.
  bool complete(Result<T>&& result) {
    if (done()) return false;
    const bool failed = !result;
    result_.emplace(std::move(result));
    settle(failed);
    return true;
  }
  bool succeed(T&& value) {
    if (done()) return false;
    result_.emplace(std::move(value));
    settle(false);
    return true;
  }
  bool fail(Status error) {
    if (done()) return false;
    result_.emplace(std::move(error));
    settle(true);
    return true;
  }
  // Completes a new state that has no future, adds its only future, and ends the producer's
  // ownership.
  void begin_done(Result<T>&& result) {
    const bool failed = !result;
    result_.emplace(std::move(result));
    this->begin_settled(failed);
  }
  // Completes the future now. `make` makes the outcome later, in the thread that takes the outcome.
  bool complete_with(UniqueFunction<Result<T>()> make) {
    if (done()) return false;
    make_ = std::move(make);
    settle(false);
    return true;
  }
  // Ends the producer's ownership. Completes the future if the producer has not.
  void abandon() {
    if (!done()) fail(Status(Code::kInternal, "a promise was dropped without an outcome"));
    drop_producer();
  }
  // Takes the outcome of a state of this type. Call only after done().
  static Result<T> take(FutureCore& core) {
    return static_cast<FutureState&>(core).take_with([](Result<T>&& result) { return std::move(result); });
  }
  // Takes the outcome, and returns use(outcome). The outcome stays where it is, and `use` gets a
  // reference to it. Call only after done().
  template <class F>
  auto take_with(F&& use) {
    switch (claim()) {
      case Take::kGivenBack:
        return use(Status(Code::kCancelled, "cancelled before it was taken, and given back"));
      case Take::kTwice:
        return use(Status(Code::kInvalidArgument, "the result of this future was taken before"));
      case Take::kNow:
        break;
    }
    if (result_) {
      auto out = use(std::move(*result_));
      result_.reset();  // copies of the future keep no value that was taken
      return out;
    }
    auto make = std::move(make_);
    return use(make());
  }

 protected:
  ~FutureState() = default;

 private:
  void drop_outcome() final {
    result_.reset();
    make_ = {};
  }

  std::optional<Result<T>> result_;
  UniqueFunction<Result<T>()> make_;  // if set, makes the outcome when it is taken
};

// The state of a Promise's future.
template <class T>
class PromiseState final : public FutureState<T> {
 public:
  using FutureState<T>::FutureState;
  static void* operator new(std::size_t bytes) { return take_pooled(bytes); }
  static void operator delete(void* state, std::size_t bytes) { give_pooled(state, bytes); }
  // Sets the label for error texts. Call before sharing the state.
  void set_label(std::string label) { label_ = std::move(label); }
  [[nodiscard]] std::string label() const override { return label_; }

 private:
  ~PromiseState() = default;
  void destroy() noexcept override { delete this; }
  std::string label_;
};

// One copy of a future, without its type.
class FutureRef {
 public:
  FutureRef() = default;
  // Takes over a future that was counted before.
  explicit FutureRef(FutureCore* counted) : core_(counted) {}
  FutureRef(const FutureRef& other) : core_(other.core_) {
    if (core_ != nullptr) core_->add_future();
  }
  FutureRef(FutureRef&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  FutureRef& operator=(FutureRef other) noexcept {
    std::swap(core_, other.core_);
    return *this;
  }
  ~FutureRef() {
    if (core_ != nullptr) core_->drop_future();
  }
  FutureCore* operator->() const { return core_; }
  FutureCore& operator*() const { return *core_; }
  explicit operator bool() const { return core_ != nullptr; }

 private:
  FutureCore* core_ = nullptr;
};

}  // namespace detail
}  // namespace slime
