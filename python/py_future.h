#pragma once

#include <functional>
#include <vector>

#include "python/binding.h"
#include "rpc/delivery.h"
#include "rpc/metadata.h"

namespace slime::python {

// A Future<T> of any T, for Python.
class AnyFuture {
 public:
  AnyFuture() = default;
  AnyFuture(const AnyFuture&) = delete;
  AnyFuture& operator=(const AnyFuture&) = delete;
  virtual ~AnyFuture() = default;

  virtual bool wait_done(Nanos timeout) = 0;
  virtual bool done() = 0;
  virtual void cancel() = 0;
  virtual void on_done(Task task) = 0;
  // Returns the driver of the future; null if the future ends without help from a waiting thread.
  virtual std::shared_ptr<Driver> driver() = 0;
  // Returns the status of the outcome. Call only when the future is done.
  virtual Status status() = 0;
  // Returns the value. Call only when the future is done and OK. May be called again. Thread: holds
  // the GIL.
  virtual nb::object value() = 0;
  // Frees the payload that the value was made from. Called when the caller has taken the value.
  virtual void value_taken() {}
  // Puts a received message that was not taken back to its tag, for the next receive. Returns false
  // if this future has no such message.
  virtual bool give_back() { return false; }
};

// AnyFuture for a Future<T>. Convert: T& -> nb::object, called with the GIL held.
template <class T, class Convert>
class FutureOf final : public AnyFuture {
 public:
  FutureOf(Future<T> future, Convert convert) : future_(std::move(future)), convert_(std::move(convert)) {}
  bool wait_done(Nanos timeout) override { return future_.wait_done(timeout); }
  bool done() override { return future_.done(); }
  void cancel() override { future_.cancel(); }
  void on_done(Task task) override { future_.on_done(std::move(task)); }
  std::shared_ptr<Driver> driver() override { return future_.driver(); }
  Status status() override { return taken().status(); }
  nb::object value() override { return convert_(*taken()); }
  void value_taken() override {
    if constexpr (requires(Convert & convert) { convert.value_taken(); }) convert_.value_taken();
    if constexpr (std::is_same_v<T, rpc::Delivery>) static_cast<void>(taken()->take());
    kept_ = true;
  }
  bool give_back() override {
    if (!std::is_same_v<T, rpc::Delivery> || kept_ || !result_ || !*result_) return false;
    result_.emplace(Status(Code::kCancelled, "cancelled before it was taken, and given back"));
    return true;
  }

 private:
  Result<T>& taken() {
    if (!result_) result_.emplace(future_.wait(Nanos::zero()));
    return *result_;
  }
  Future<T> future_;
  Convert convert_;
  std::optional<Result<T>> result_;
  bool kept_ = false;  // the value was taken
};

// Whether KeyboardInterrupt in result() cancels the operation.
enum class OnInterrupt { kGoOn, kCancel };

// slime.Future. Thread: holds the GIL.
class PyFuture {
 public:
  // `agent` makes progress for the future. `decode`, if valid, makes the Python value from the
  // payload. `timing` is filled before the call is done; null if the call is not timed.
  PyFuture(std::shared_ptr<AnyFuture> future, nb::object agent, nb::object decode,
           std::shared_ptr<rpc::CallTiming> timing, OnInterrupt on_interrupt)
      : future_(std::move(future)),
        agent_(std::move(agent)),
        decode_(std::move(decode)),
        timing_(std::move(timing)),
        on_interrupt_(on_interrupt) {}

  // Makes a future of the same outcome.
  PyFuture(const PyFuture& other)
      : future_(other.future_.shared()),
        agent_(other.agent_),
        decode_(other.decode_),
        timing_(other.timing_),
        on_interrupt_(other.on_interrupt_) {}
  PyFuture(PyFuture&&) = default;

  // Waits, and returns the value or raises the error. Raises WaitTimeout after `timeout` seconds.
  nb::object result(std::optional<double> timeout);
  // Waits like result(). Returns the error that result() would raise, or None. Does not take the
  // value.
  nb::object exception(std::optional<double> timeout);
  // Like result(), but does not take a received message: if the future is dropped or cancelled
  // before keep(), the message returns to its tag.
  nb::object peek(std::optional<double> timeout);
  void keep() {
    future_->value_taken();
    kept_ = true;
  }
  bool wait_done(std::optional<double> timeout) const;
  [[nodiscard]] bool done() const { return value_.is_valid() || future_->done(); }
  void cancel();
  [[nodiscard]] AnyFuture& any() const { return *future_; }
  [[nodiscard]] const std::shared_ptr<AnyFuture>& shared() const { return future_.shared(); }
  [[nodiscard]] const nb::object& agent() const { return agent_; }
  // Returns the call's timing. Returns None before the call is done, and for a call that is not
  // timed.
  [[nodiscard]] nb::object timing() const;

  static int traverse(PyObject* self, visitproc visit, void* arg);
  static int clear(PyObject* self);

 private:
  // Waits until the future is done, or raises WaitTimeout after `timeout` seconds.
  void wait_or_raise(std::optional<double> timeout);
  // Returns the value of a future that is done, or raises the error.
  nb::object outcome();

  ForkGuarded<AnyFuture> future_;
  nb::object agent_;
  nb::object decode_;
  nb::object value_;
  std::shared_ptr<rpc::CallTiming> timing_;
  OnInterrupt on_interrupt_;
  bool kept_ = false;  // the value was taken
};

template <class T, class Convert>
nb::object make_future(Future<T> future, nb::object agent, Convert convert, nb::object decode = {},
                       std::shared_ptr<rpc::CallTiming> timing = nullptr,
                       OnInterrupt on_interrupt = OnInterrupt::kGoOn) {
  return nb::cast(PyFuture(std::make_shared<FutureOf<T, Convert>>(std::move(future), std::move(convert)),
                           std::move(agent), std::move(decode), std::move(timing), on_interrupt));
}
inline nb::object make_future(Future<None> future, nb::object agent,
                              std::shared_ptr<rpc::CallTiming> timing = nullptr,
                              OnInterrupt on_interrupt = OnInterrupt::kGoOn) {
  const auto nothing = [](None&) { return nb::none(); };
  return make_future(std::move(future), std::move(agent), nothing, {}, std::move(timing), on_interrupt);
}

void bind_wait(nb::module_& m);

}  // namespace slime::python
