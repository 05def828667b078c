#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/fork.h"
#include "base/future.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/status.h"
#include "base/thread.h"

// Declarations that the binding files share. Two rules of this folder: a loop's thread never takes
// the GIL, so nothing that a loop may run or destroy holds a Python object; and no thread waits
// while it holds the GIL.
namespace slime::python {

namespace nb = nanobind;

// Raises the Python exception for a status that is not OK.
[[noreturn]] void raise(const Status& status);
[[noreturn]] void raise(Code code, std::string text);
inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}
template <class T>
T unwrap(Result<T> result) {
  if (!result) raise(result.error());
  return *std::move(result);
}

// Owns a C++ object for Python. In a forked child the object's threads do not exist and its sockets
// belong to the parent process: using the object there raises Unavailable, and the destructor leaks
// the object on purpose.
template <class T>
class ForkGuarded {
 public:
  ForkGuarded() = default;
  explicit ForkGuarded(std::shared_ptr<T> object)
      : object_(std::move(object)), generation_(fork_generation()) {}
  ForkGuarded(ForkGuarded&& other) noexcept = default;
  ForkGuarded& operator=(ForkGuarded&& other) = delete;
  ~ForkGuarded() {
    if (object_ && forked()) new std::shared_ptr<T>(std::move(object_));
  }

  T& operator*() const { return *shared(); }
  T* operator->() const { return shared().get(); }
  const std::shared_ptr<T>& shared() const {
    if (forked()) raise(Code::kUnavailable, "made before fork(): this child process has to make its own");
    return object_;
  }
  [[nodiscard]] bool forked() const { return generation_ != fork_generation(); }
  // Destroys the object; in a forked child leaks it instead.
  void reset() {
    if (!forked()) object_.reset();
  }

 private:
  std::shared_ptr<T> object_;
  std::uint64_t generation_ = 0;
};

// Converts Python's seconds. None means the agent's default timeout. Raises InvalidArgument for a
// number that is not positive.
Nanos timeout_or_default(std::optional<double> seconds);
// Converts Python's seconds. None means no timeout; negative numbers become zero.
Nanos timeout_from(std::optional<double> seconds);

// Interval at which a waiting thread lets Python handle its signals.
inline constexpr Nanos kSignalInterval = std::chrono::milliseconds(100);

// Calls wait(Nanos) -> bool repeatedly, each time for a short slice and without the GIL, until it
// returns true or the timeout has passed. Raises the exception of a signal handler
// (KeyboardInterrupt). Thread: holds the GIL.
template <class Wait>
bool wait_in_slices(Wait wait, Nanos timeout) {
  const TimePoint deadline = deadline_after(steady_clock().now(), timeout);
  while (true) {
    const TimePoint now = steady_clock().now();
    const Nanos left =
        deadline == kNever ? kSignalInterval : std::min(kSignalInterval, Nanos(deadline - now));
    {
      const nb::gil_scoped_release unlocked;
      if (wait(std::max(left, Nanos::zero()))) return true;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (steady_clock().now() >= deadline) return false;
  }
}

bool on_main_thread();

namespace detail {

// Counts the threads that finish calls whose wait was interrupted. When the process ends, it waits
// a bounded time for these threads.
struct Helpers {
  Mutex mutex;
  CondVar changed;
  int running SLIME_GUARDED_BY(mutex) = 0;
};
Helpers& helpers();

}  // namespace detail

// Runs a blocking C++ call without the GIL. In Python's main thread, the only thread that handles
// signals, the call runs on a helper thread, so that KeyboardInterrupt ends the wait; the call
// itself goes on. `fn` must own everything that it uses.
template <class F>
auto run_blocking(F fn) -> decltype(fn()) {
  using R = decltype(fn());  // R may be Status, which cannot be the value type of Result
  if (!on_main_thread()) {
    const nb::gil_scoped_release unlocked;
    return fn();
  }
  Promise<std::unique_ptr<R>> promise;
  auto outcome = promise.future();
  {
    const MutexLock lock(detail::helpers().mutex);
    ++detail::helpers().running;
  }
  make_thread([promise = std::optional(std::move(promise)),
               fn = std::make_unique<F>(std::move(fn))]() mutable {
    promise->complete(std::make_unique<R>((*fn)()));
    fn.reset();
    promise.reset();
    const MutexLock lock(detail::helpers().mutex);
    --detail::helpers().running;
    detail::helpers().changed.notify_all();
  }).detach();
  wait_in_slices([&](Nanos slice) { return outcome.wait_done(slice); }, Nanos::max());
  return std::move(**outcome.wait());
}

// Converts a Python int that fits the return type. Raises InvalidArgument, with `name` in the text,
// for other values.
std::uint64_t unsigned_from(nb::handle value, const char* name);
// Converts an integer from -2^63 to 2^64 - 1, modulo 2^64.
std::uint64_t wrapped_from(nb::handle value, const char* name);

void bind_base(nb::module_& m);
void bind_future(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_agent(nb::module_& m);
void bind_rpc(nb::module_& m);
void bind_cache(nb::module_& m);
void bind_kv(nb::module_& m);
void bind_broadcast(nb::module_& m);
void bind_attachments(nb::module_& m);
void bind_devices(nb::module_& m);

}  // namespace slime::python
