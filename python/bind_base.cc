#include <atomic>
#include <cmath>

#include "base/log.h"
#include "python/binding.h"

namespace slime::python {
namespace {

std::atomic<unsigned long> main_thread{0};

void bind_code(nb::module_& m) {
  nb::enum_<Code>(m, "Code", nb::is_arithmetic(), "Tells the caller of a failed operation what to do next.")
      .value("OK", Code::kOk)
      .value("INVALID_ARGUMENT", Code::kInvalidArgument, "fix the call")
      .value("NOT_FOUND", Code::kNotFound, "branch on it")
      .value("ALREADY_EXISTS", Code::kAlreadyExists, "branch on it")
      .value("PERMISSION_DENIED", Code::kPermissionDenied, "get rights")
      .value("UNAUTHENTICATED", Code::kUnauthenticated, "get rights")
      .value("RESOURCE_EXHAUSTED", Code::kResourceExhausted, "back off, then retry")
      .value("UNIMPLEMENTED", Code::kUnimplemented, "fall back")
      .value("DEADLINE_EXCEEDED", Code::kDeadlineExceeded, "outcome unknown; retry only if idempotent")
      .value("CANCELLED", Code::kCancelled, "you asked for it")
      .value("ABORTED", Code::kAborted, "the peer restarted: redo from a higher level")
      .value("UNAVAILABLE", Code::kUnavailable, "retry if idempotent or if not maybe_executed")
      .value("CORRUPT", Code::kCorrupt, "drop the peer")
      .value("INTERNAL", Code::kInternal, "report a bug");
}

// Waits up to `timeout` seconds for the helper threads. Returns true when all of them have ended.
bool wait_for_helpers(double timeout) {
  detail::Helpers& helpers = detail::helpers();
  const nb::gil_scoped_release unlocked;
  const MutexLock lock(helpers.mutex);
  return helpers.changed.wait_for(helpers.mutex, timeout_from(timeout),
                                  [&]() SLIME_REQUIRES(helpers.mutex) { return helpers.running == 0; });
}

}  // namespace

void raise(const Status& status) {
  const nb::object errors = nb::module_::import_("slime._errors");
  const nb::object error = status.wait_timeout()
                               ? errors.attr("WaitTimeout")(status.text())
                               : errors.attr("from_status")(static_cast<int>(status.code()), status.text(),
                                                            status.maybe_executed());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void raise(Code code, std::string text) { raise(Status(code, std::move(text))); }

bool on_main_thread() { return PyThread_get_thread_ident() == main_thread.load(std::memory_order_relaxed); }

detail::Helpers& detail::helpers() {
  static constinit PerProcess<Helpers> all;  // never destroyed: a helper may outlive main()
  return all.get();
}

Nanos timeout_or_default(std::optional<double> seconds) {
  if (!seconds) return Nanos::zero();
  if (!(*seconds > 0)) raise(Code::kInvalidArgument, "a time is a positive number of seconds, or None");
  return std::max(timeout_from(seconds), Nanos(1));
}

Nanos timeout_from(std::optional<double> seconds) {
  if (!seconds) return Nanos::max();
  if (std::isnan(*seconds)) raise(Code::kInvalidArgument, "a timeout is a number of seconds, or None");
  if (*seconds <= 0) return Nanos::zero();
  if (*seconds > 1e9) return Nanos::max();
  return std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(*seconds));
}

std::uint64_t unsigned_from(nb::handle value, const char* name) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  const unsigned long long number = PyLong_AsUnsignedLongLong(index.ptr());
  if (number == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise(Code::kInvalidArgument, std::string(name) + " is " + nb::str(index).c_str() +
                                      ": neither negative nor above 2**64 - 1 is allowed");
  }
  return number;
}

std::uint64_t wrapped_from(nb::handle value, const char* name) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow > 0) return unsigned_from(index, name);
  if (overflow < 0)
    raise(Code::kInvalidArgument, std::string(name) + " is " + nb::str(index).c_str() + ": below -2**63");
  return static_cast<std::uint64_t>(number);
}

void bind_base(nb::module_& m) {
  bind_code(m);
  nb::enum_<LogLevel>(m, "LogLevel")
      .value("DEBUG", LogLevel::kDebug)
      .value("INFO", LogLevel::kInfo)
      .value("WARNING", LogLevel::kWarning)
      .value("ERROR", LogLevel::kError)
      .value("OFF", LogLevel::kOff);
  m.def(
      "set_log_level", [](LogLevel level) { set_log_level(level); }, nb::arg("level"),
      "How much Slime writes to stderr.");
  m.def("wait_for_helpers", &wait_for_helpers, nb::arg("timeout"));
  main_thread =
      nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
}

}  // namespace slime::python
