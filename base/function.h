#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace slime {

template <class Signature>
class UniqueFunction;

// A small std::move_only_function (GCC 12 has none in C++20): owns a callable that need not be
// copyable. Stores small callables inline; a larger one, or one with a throwing move, costs an
// allocation.
template <class R, class... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() = default;
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, UniqueFunction> && std::is_invocable_r_v<R, F&, Args...>)
      UniqueFunction(F&& f) {  // NOLINT(google-explicit-constructor): as std::function
    using Callable = std::decay_t<F>;
    if constexpr (kFits<Callable>) {
      ::new (static_cast<void*>(storage_)) Callable(std::forward<F>(f));
      calls_ = &kInside<Callable>;
    } else {
      ::new (static_cast<void*>(storage_)) Callable*(new Callable(std::forward<F>(f)));
      calls_ = &kOutside<Callable>;
    }
  }
  UniqueFunction(UniqueFunction&& other) noexcept { take(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~UniqueFunction() { reset(); }

  explicit operator bool() const { return calls_ != nullptr; }
  // Calls the callable; the function must not be empty. An argument passed by value is moved once,
  // into the callable's own parameter.
  template <class... Given>
  requires std::is_invocable_v<R (*)(Args...), Given...> R operator()(Given&&... args) {
    return calls_->invoke(storage_, static_cast<Passed<Args, Given>>(std::forward<Given>(args))...);
  }

 private:
  // Type as which an argument is passed on: Arg&& for an rvalue of type Arg; else Arg, to which the
  // argument is converted first.
  template <class Arg, class Given>
  using Passed = std::conditional_t<std::is_same_v<Given&&, Arg&&>, Arg&&, Arg>;
  struct Calls {
    R (*invoke)(void* storage, Args&&... args);
    void (*move)(void* from, void* to) noexcept;  // destroys the moved-from object, too
    void (*destroy)(void* storage) noexcept;
  };
  static constexpr std::size_t kBytes = 6 * sizeof(void*);
  template <class F>
  static constexpr bool kFits = sizeof(F) <= kBytes &&
                                alignof(F) <= alignof(void*) && std::is_nothrow_move_constructible_v<F>;

  template <class F>
  static F& inside(void* storage) {
    return *std::launder(static_cast<F*>(storage));
  }
  template <class F>
  static F*& outside(void* storage) {
    return *std::launder(static_cast<F**>(storage));
  }
  template <class F>
  static constexpr Calls kInside{[](void* storage, Args&&... args) -> R {
                                   return static_cast<R>(inside<F>(storage)(std::forward<Args>(args)...));
                                 },
                                 [](void* from, void* to) noexcept {
                                   ::new (to) F(std::move(inside<F>(from)));
                                   inside<F>(from).~F();
                                 },
                                 [](void* storage) noexcept { inside<F>(storage).~F(); }};
  template <class F>
  static constexpr Calls kOutside{
      [](void* storage, Args&&... args) -> R {
        return static_cast<R>((*outside<F>(storage))(std::forward<Args>(args)...));
      },
      [](void* from, void* to) noexcept { ::new (to) F*(outside<F>(from)); },
      [](void* storage) noexcept { delete outside<F>(storage); }};

  void take(UniqueFunction& other) noexcept {
    if (other.calls_ == nullptr) return;
    other.calls_->move(other.storage_, storage_);
    calls_ = std::exchange(other.calls_, nullptr);
  }
  void reset() noexcept {
    if (calls_ != nullptr) std::exchange(calls_, nullptr)->destroy(storage_);
  }

  const Calls* calls_ = nullptr;
  alignas(void*) std::byte storage_[kBytes];
};

using Task = UniqueFunction<void()>;

}  // namespace slime
