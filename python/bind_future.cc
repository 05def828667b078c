#include <nanobind/typing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"
#include "python/py_agent.h"
#include "python/py_future.h"
#include "python/py_rpc.h"

namespace slime::python {
namespace {

// Reports finished futures to Python. Loops push the numbers of the futures without the GIL. Python
// watches the file descriptor or calls wait(), and then takes the numbers.
class CompletionQueue {
 public:
  static std::shared_ptr<CompletionQueue> create() {
    UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event.valid()) raise(from_errno("eventfd", errno));
    return std::make_shared<CompletionQueue>(std::move(event));
  }
  explicit CompletionQueue(UniqueFd event) : event_(std::move(event)) {}

  // Thread: any.
  void push(std::uint64_t number) {
    const MutexLock lock(mutex_);
    numbers_.push_back(number);
    if (numbers_.size() == 1) signal();
  }
  // Ends take_or_wait() for good.
  void close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    signal();
  }
  std::vector<std::uint64_t> take() {
    const MutexLock lock(mutex_);
    std::uint64_t count = 0;
    if (!closed_) {
      [[maybe_unused]] const ssize_t bytes = ::read(event_.get(), &count, sizeof count);
    }
    return std::exchange(numbers_, {});
  }
  // Waits until the queue has a number. Returns false once the queue is closed.
  bool wait() {
    while (true) {
      pollfd wanted{event_.get(), POLLIN, 0};
      ::poll(&wanted, 1, -1);
      const MutexLock lock(mutex_);
      if (closed_) return false;
      if (!numbers_.empty()) return true;
    }
  }
  [[nodiscard]] int fd() const { return event_.get(); }

 private:
  void signal() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t bytes = ::write(event_.get(), &one, sizeof one);
  }
  const UniqueFd event_;
  Mutex mutex_;
  std::vector<std::uint64_t> numbers_ SLIME_GUARDED_BY(mutex_);
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
};

using QueueHandle = ForkGuarded<CompletionQueue>;

nb::list to_list(const std::vector<std::uint64_t>& numbers) {
  nb::list out;
  for (const std::uint64_t number : numbers) out.append(number);
  return out;
}

void bind_completion_queue(nb::module_& m) {
  nb::class_<QueueHandle>(m, "CompletionQueue", "Numbers of finished futures.")
      .def("__init__", [](QueueHandle* self) { new (self) QueueHandle(CompletionQueue::create()); })
      .def("fileno", [](const QueueHandle& self) { return self->fd(); })
      .def(
          "take",
          [](const QueueHandle& self) {
            // The parent process uses the same file descriptor, so a forked child must not read it.
            if (self.forked()) return nb::list();
            return to_list(self->take());
          },
          nb::sig("def take(self) -> list[int]"), "Returns the numbers that have arrived.")
      .def(
          "wait",
          [](const QueueHandle& self) {
            CompletionQueue& queue = *self;
            const nb::gil_scoped_release unlocked;
            return queue.wait();
          },
          "Waits until take() has a number to return. Returns False once closed.")
      .def("close", [](const QueueHandle& self) {
        if (!self.forked()) self->close();
      });
}

PyType_Slot kFutureSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&PyFuture::traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(&PyFuture::clear)},
                              {0, nullptr}};

nb::object completion_helper(const char* name) {
  return nb::module_::import_("slime._completion").attr(name);
}

}  // namespace

bool PyFuture::wait_done(std::optional<double> timeout) const {
  if (done()) return true;
  const std::shared_ptr<AnyFuture> future = future_.shared();
  return wait_in_slices([&](Nanos slice) { return future->wait_done(slice); }, timeout_from(timeout));
}

nb::object PyFuture::result(std::optional<double> timeout) {
  if (kept_ && value_.is_valid()) return value_;
  nb::object value = peek(timeout);
  keep();
  return value;
}

nb::object PyFuture::exception(std::optional<double> timeout) {
  if (value_.is_valid()) return nb::none();
  wait_or_raise(timeout);
  try {
    outcome();
    return nb::none();
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // KeyboardInterrupt while the value was decoded
    return nb::borrow(error.value());
  }
}

void PyFuture::cancel() {
  if (future_->give_back()) value_.reset();
  future_->cancel();
}

nb::object PyFuture::peek(std::optional<double> timeout) {
  if (value_.is_valid()) return value_;
  wait_or_raise(timeout);
  return outcome();
}

void PyFuture::wait_or_raise(std::optional<double> timeout) {
  const bool in_time = [&] {
    try {
      return wait_done(timeout);
    } catch (const nb::python_error& error) {
      // Ctrl-C cancels the call, so that the program can end without waiting for the call's answer.
      if (on_interrupt_ == OnInterrupt::kCancel && error.matches(PyExc_KeyboardInterrupt)) cancel();
      throw;
    }
  }();
  if (!in_time) raise(Status::wait_timed_out());
}

nb::object PyFuture::outcome() {
  check(future_->status());
  nb::object raw;
  nb::object value;
  try {
    raw = future_->value();
    value = decode_.is_valid() ? decode_(raw) : raw;
  } catch (nb::python_error&) {
    if (!value_.is_valid()) throw;
    // another thread has decoded the value meanwhile, and dropped the payload's attachments
    return value_;
  }
  if (value_.is_valid()) return value_;
  value_ = value;
  // Drops the payload's references to the attachments: from now on only the decoded value keeps
  // them.
  if (decode_.is_valid() && nb::isinstance<PyPayload>(raw))
    nb::cast<PyPayload&>(raw).payload().drop_attachments();
  return value;
}

nb::object PyFuture::timing() const {
  if (!timing_ || !done()) return nb::none();
  return nb::make_tuple(timing_->queue.count(), timing_->handler.count(), timing_->network.count(),
                        timing_->total.count(), timing_->split);
}

int PyFuture::traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* future = nb::inst_ptr<PyFuture>(self);
  Py_VISIT(future->agent_.ptr());
  Py_VISIT(future->decode_.ptr());
  Py_VISIT(future->value_.ptr());
  return 0;
}

int PyFuture::clear(PyObject* self) {
  auto* future = nb::inst_ptr<PyFuture>(self);
  future->agent_.reset();
  future->decode_.reset();
  future->value_.reset();
  return 0;
}

void bind_future(nb::module_& m) {
  bind_completion_queue(m);
  // type variable: the type of a Future's value in the stub's signatures
  m.attr("T") = nb::type_var("T");
  nb::class_<PyFuture>(
      m, "Future", nb::type_slots(kFutureSlots), nb::is_generic(), nb::sig("class Future(typing.Generic[T])"),
      "The outcome of an operation: result() waits for it, and asyncio awaits it. Any thread.")
      .def("result", &PyFuture::result, nb::arg("timeout") = nb::none(),
           nb::sig("def result(self, timeout: float | None = None) -> T"),
           "Waits, and returns the value or raises the error. May be called again.\n\n"
           "timeout: seconds; None: no limit. After it WaitTimeout is raised; the operation goes on.\n"
           "KeyboardInterrupt ends the wait, and cancels a call.")
      .def("exception", &PyFuture::exception, nb::arg("timeout") = nb::none(),
           nb::sig("def exception(self, timeout: float | None = None) -> Exception | None"),
           "Waits like result(). Returns the error that result() raises (slime.Cancelled too), or None.\n\n"
           "A received message is not taken. Raises WaitTimeout after `timeout` seconds.")
      .def(
          "__init__", [](PyFuture* self, const PyFuture& other) { new (self) PyFuture(other); },
          nb::arg("other"), nb::sig("def __init__(self, other: Future[T]) -> None"),
          "Makes a future of the same outcome.")
      .def("_peek", &PyFuture::peek, nb::arg("timeout") = nb::none(),
           nb::sig("def _peek(self, timeout: float | None = None) -> T"),
           "Like result(), but a received message goes back to its tag if this future is dropped before\n"
           "`_kept` is set.")
      .def_prop_rw(
          "_kept", [](const PyFuture&) { return false; }, [](PyFuture& self, bool) { self.keep(); },
          "Setting it takes the value of _peek(): the message will not go back.")
      .def(
          "wait_done", &PyFuture::wait_done, nb::arg("timeout") = nb::none(),
          "Waits like result(), but takes nothing and raises no error of the operation. Returns False after\n"
          "`timeout` seconds.")
      .def("done", &PyFuture::done, "Returns whether the operation has ended. Does not wait.")
      .def("_timing_parts", &PyFuture::timing,
           nb::sig("def _timing_parts(self) -> tuple[int, int, int, int, bool] | None"),
           "The parts of slime.timing_of()'s Timing.")
      .def("cancel", &PyFuture::cancel,
           "Asks the operation to end early. The future still completes: with slime.Cancelled, or\n"
           "with an earlier outcome.")
      .def(
          "add_done_callback",
          [](nb::handle self, nb::handle callback) {
            completion_helper("add_done_callback")(self, callback);
          },
          nb::arg("callback"),
          nb::sig("def add_done_callback(self, callback: collections.abc.Callable[[Future[T]], "
                  "typing.Any]) -> None"),
          "Calls callback(self) once the operation has ended, on a thread of Slime. An exception of the\n"
          "callback is logged.")
      .def(
          "__await__", [](nb::handle self) { return completion_helper("await_future")(self); },
          nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, None, T]"))
      .def_prop_ro(
          "agent", [](const PyFuture& self) { return self.agent(); }, nb::sig("def agent(self) -> PeerAgent"),
          "The agent of the operation.")
      .def(
          "_notify",
          [](const PyFuture& self, const QueueHandle& queue, std::uint64_t number) {
            // The callback holds only a weak reference: the queue ends with its Python object.
            self.any().on_done([queue = std::weak_ptr(queue.shared()), number] {
              if (const auto told = queue.lock()) told->push(number);
            });
            // `agent` is None for a future of a handler's stream: the handler's agent already makes
            // progress for its callers.
            const nb::object& agent = self.agent();
            return agent.is_valid() && !agent.is_none() && !self.done() &&
                   nb::cast<const PyAgent&>(agent).progress() == Progress::kCaller;
          },
          nb::arg("queue"), nb::arg("number"),
          "Puts the number into the queue once this is done. Returns whether a thread has to drive the\n"
          "agent meanwhile: Progress.CALLER.");
  bind_wait(m);
}

}  // namespace slime::python
