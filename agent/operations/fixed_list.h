#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "base/check.h"

namespace slime::agent {

// A list that never grows beyond the room it was given first, so its elements never move. Up to
// kInside elements lie inside the object, without an allocation. Thread: one.
template <class T, std::size_t kInside>
class FixedList {
 public:
  FixedList() {}  // NOLINT(modernize-use-equals-default): the default would clear inside_ first
  FixedList(const FixedList&) = delete;
  FixedList& operator=(const FixedList&) = delete;
  ~FixedList() {
    std::destroy_n(first_, size_);
    if (room_ > kInside) std::allocator<T>().deallocate(first_, room_);
  }

  // Makes room for `most` elements. Call at most once, before the first element.
  void reserve(std::size_t most) {
    SLIME_CHECK(size_ == 0 && room_ == kInside);
    if (most <= kInside) return;
    first_ = std::allocator<T>().allocate(most);
    room_ = most;
  }
  template <class... A>
  T& emplace_back(A&&... arguments) {
    SLIME_CHECK(size_ < room_);
    T* const made = std::construct_at(first_ + size_, std::forward<A>(arguments)...);
    ++size_;
    return *made;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T* data() { return first_; }
  [[nodiscard]] const T* data() const { return first_; }
  T& operator[](std::size_t index) { return first_[index]; }
  const T& operator[](std::size_t index) const { return first_[index]; }
  T& front() { return *first_; }
  T& back() { return first_[size_ - 1]; }
  [[nodiscard]] T* begin() { return first_; }
  [[nodiscard]] T* end() { return first_ + size_; }
  [[nodiscard]] const T* begin() const { return first_; }
  [[nodiscard]] const T* end() const { return first_ + size_; }

 private:
  alignas(T) std::array<std::byte, kInside * sizeof(T)> inside_;
  T* first_ = reinterpret_cast<T*>(inside_.data());
  std::size_t size_ = 0;
  std::size_t room_ = kInside;
};

}  // namespace slime::agent
