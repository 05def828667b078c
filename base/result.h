#pragma once

#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace slime {

// A value, or the Status that explains why there is none. The API is a subset of std::expected<T,
// Status>.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): return value;
  Result(Status error) : value_(tl::unexpect, std::move(error)) {  // NOLINT: return Status(...);
    SLIME_CHECK(!value_.error().ok());
  }

  [[nodiscard]] bool has_value() const { return value_.has_value(); }
  explicit operator bool() const { return has_value(); }

  T& operator*() & { return checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
  T&& operator*() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->checked(); }

  // Call only if !has_value().
  [[nodiscard]] const Status& error() const& {
    SLIME_CHECK(!has_value());
    return value_.error();
  }
  [[nodiscard]] Status error() && {
    SLIME_CHECK(!has_value());
    return std::move(value_.error());
  }
  // Returns OK, or the error.
  [[nodiscard]] Status status() const { return has_value() ? Status() : value_.error(); }

  template <class U>
  [[nodiscard]] T value_or(U&& other) const& {
    return has_value() ? *value_ : static_cast<T>(std::forward<U>(other));
  }

 private:
  T& checked() {
    if (!has_value()) detail::no_value(value_.error());
    return *value_;
  }
  tl::expected<T, Status> value_;
};

// The value of Result<None> and Future<None>: success without data.
struct None {};

}  // namespace slime
