#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace slime {

template <class Signature>
class UniqueFunction;

// std::move_only_function in a few lines (GCC 12 has none at C++20): owns a callable that need not be
// copyable.
template <class R, class... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() = default;
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, UniqueFunction> && std::is_invocable_r_v<R, F&, Args...>)
      UniqueFunction(F&& f)  // NOLINT(google-explicit-constructor): as std::function
      : target_(std::make_unique<Target<std::decay_t<F>>>(std::forward<F>(f))) {}

  explicit operator bool() const { return target_ != nullptr; }
  R operator()(Args... args) { return target_->invoke(std::forward<Args>(args)...); }

 private:
  struct Base {
    Base() = default;
    Base(const Base&) = delete;
    Base& operator=(const Base&) = delete;
    virtual ~Base() = default;
    virtual R invoke(Args... args) = 0;
  };
  template <class F>
  struct Target final : Base {
    explicit Target(F f) : f(std::move(f)) {}
    R invoke(Args... args) override { return f(std::forward<Args>(args)...); }
    F f;
  };
  std::unique_ptr<Base> target_;
};

using Task = UniqueFunction<void()>;

}  // namespace slime
