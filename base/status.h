#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace slime {

// The kind of a failure; each kind tells the caller what to do next. The numbers are part of the
// wire format: append only.
enum class Code : std::uint8_t {
  kOk = 0,
  kInvalidArgument = 1,    // fix the call
  kNotFound = 2,           // branch on it
  kAlreadyExists = 3,      // branch on it
  kPermissionDenied = 4,   // get rights
  kUnauthenticated = 5,    // get rights
  kResourceExhausted = 6,  // back off, then retry
  kUnimplemented = 7,      // fall back
  kDeadlineExceeded = 8,   // outcome unknown; retry only if idempotent
  kCancelled = 9,          // you asked for it
  kAborted = 10,           // the peer restarted: redo from a higher level
  kUnavailable = 11,       // retry if idempotent or if !maybe_executed()
  kCorrupt = 12,           // drop the peer
  kInternal = 13,          // report a bug
};
inline constexpr std::uint8_t kCodeCount = 14;

// Returns the stable name of a code: "unavailable", "deadline_exceeded", ... JSON and Python show
// these names.
std::string_view code_name(Code code);

// Converts a number that a peer sent to a code. Unknown numbers, and the number of kOk, become
// kInternal: an error stays an error.
Code error_code_from_wire(std::uint8_t value);

// The outcome of an operation: OK, or a code with a text for people. One pointer; null is OK, so
// success costs nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text);  // kOk gives an OK status and drops the text

  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  [[nodiscard]] bool ok() const { return rep_ == nullptr; }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] Code code() const { return rep_ ? rep_->code : Code::kOk; }
  [[nodiscard]] const std::string& text() const;

  // Returns whether the peer may have executed the failed request: of a call, whether its handler
  // may have run; of a write or an atomic, whether it may have changed the peer's memory. False for
  // OK.
  [[nodiscard]] bool maybe_executed() const { return rep_ && rep_->maybe_executed; }

  // Returns true if Future::wait(timeout) timed out: the operation goes on, and wait() may be
  // called again. Peers see a plain kDeadlineExceeded.
  [[nodiscard]] bool wait_timeout() const { return rep_ && rep_->wait_timeout; }
  static Status wait_timed_out();

  // Returns this status with maybe_executed() set to `value`. OK stays OK.
  [[nodiscard]] Status with_maybe_executed(bool value) &&;
  // Returns this status with "context: " before its text. OK stays OK.
  [[nodiscard]] Status with_context(std::string_view context) &&;

  // Returns code and text, such as "unavailable: worker:0 closed the connection"; "ok" for OK.
  [[nodiscard]] std::string to_string() const;

  // Marks a failure as ignored on purpose: the caller cannot act on it any more.
  void ignore() const {}

 private:
  struct Rep {
    Code code;
    bool maybe_executed = false;
    std::string text;
    bool wait_timeout = false;
  };
  std::unique_ptr<Rep> rep_;
};
static_assert(sizeof(Status) == sizeof(void*));

namespace detail {

// Prints `error` and aborts: the code used the value of a Result that holds an error.
[[noreturn]] void no_value(const Status& error) noexcept;

}  // namespace detail

// Makes a Status from an errno value: kUnavailable for connection errors, kResourceExhausted for
// limits, kNotFound, kPermissionDenied, ...; kInternal if no code fits. The text is "<what>:
// <strerror>".
Status from_errno(std::string_view what, int error_number);

}  // namespace slime

// Evaluates `expr`, a Status; unless it is OK, returns it from the enclosing function.
#define SLIME_TRY(expr)                                                        \
  do {                                                                         \
    if (::slime::Status slime_try_status_ = (expr); !slime_try_status_.ok()) { \
      return slime_try_status_;                                                \
    }                                                                          \
  } while (false)
