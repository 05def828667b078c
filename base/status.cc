#include "base/status.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace slime {
namespace {

constexpr std::array<std::string_view, kCodeCount> kCodeNames = {
    "ok",
    "invalid_argument",
    "not_found",
    "already_exists",
    "permission_denied",
    "unauthenticated",
    "resource_exhausted",
    "unimplemented",
    "deadline_exceeded",
    "cancelled",
    "aborted",
    "unavailable",
    "corrupt",
    "internal",
};

Code code_from_errno(int error_number) {
  switch (error_number) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case ETIMEDOUT:
    case ESHUTDOWN:
      return Code::kUnavailable;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
    case EDQUOT:
    case EAGAIN:
      return Code::kResourceExhausted;
    case EACCES:
    case EPERM:
      return Code::kPermissionDenied;
    case ENOENT:
    case ESRCH:
    case ENODEV:
      return Code::kNotFound;
    case EEXIST:
    case EADDRINUSE:
      return Code::kAlreadyExists;
    case EINVAL:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
      return Code::kInvalidArgument;
    default:
      return Code::kInternal;
  }
}

}  // namespace

std::string_view code_name(Code code) {
  const auto index = static_cast<std::size_t>(code);
  return index < kCodeNames.size() ? kCodeNames[index] : "internal";
}

Code error_code_from_wire(std::uint8_t value) {
  return value == 0 || value >= kCodeCount ? Code::kInternal : static_cast<Code>(value);
}

Status::Status(Code code, std::string text) {
  if (code != Code::kOk) rep_ = std::make_unique<Rep>(Rep{code, false, std::move(text), false});
}

Status::Status(const Status& other) : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
  return *this;
}

const std::string& Status::text() const {
  static const std::string kEmpty;
  return rep_ ? rep_->text : kEmpty;
}

Status Status::wait_timed_out() {
  Status out(Code::kDeadlineExceeded, "still under way when the wait ended");
  out.rep_->wait_timeout = true;
  return out;
}

Status Status::with_maybe_executed(bool value) && {
  if (rep_) rep_->maybe_executed = value;
  return std::move(*this);
}

Status Status::with_context(std::string_view context) && {
  if (rep_) rep_->text = std::string(context) + ": " + rep_->text;
  return std::move(*this);
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  std::string out(code_name(rep_->code));
  if (!rep_->text.empty()) out.append(": ").append(rep_->text);
  return out;
}

void detail::no_value(const Status& error) noexcept {
  std::fprintf(stderr, "check failed: the value of a Result was used, but it holds an error: %s\n",
               error.to_string().c_str());
  std::fflush(stderr);
  std::abort();
}

Status from_errno(std::string_view what, int error_number) {
  std::string text(what);
  text.append(": ").append(std::generic_category().message(error_number));
  return {code_from_errno(error_number), std::move(text)};
}

}  // namespace slime
