#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"

namespace slime::transport {

// A FIFO queue in a ring that grows. Unlike std::deque, it allocates nothing once the ring is large
// enough. push_back() invalidates references. Thread: one.
template <class T>
class Queue {
 public:
  T& push_back(T value) {
    if (size_ == ring_.size()) grow();
    T& place = at(size_++);
    place = std::move(value);
    return place;
  }
  // Appends an element as T{}, without a move.
  T& emplace_back() {
    if (size_ == ring_.size()) grow();
    return at(size_++);
  }
  T& operator[](std::size_t index) {
    SLIME_CHECK(index < size_);
    return at(index);
  }
  T& front() { return (*this)[0]; }
  T pop_front() {
    T out = std::exchange(front(), T{});
    begin_ = (begin_ + 1) & (ring_.size() - 1);
    --size_;
    return out;
  }
  // Removes the first element, without a move.
  void drop_front() {
    front() = T{};
    begin_ = (begin_ + 1) & (ring_.size() - 1);
    --size_;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  // Removes the elements for which fn(T&) returns true; the others keep their order.
  template <class F>
  void erase_if(F&& fn) {
    for (std::size_t left = size_; left > 0; --left) {
      T value = pop_front();
      if (!fn(value)) push_back(std::move(value));
    }
  }

 private:
  T& at(std::size_t index) { return ring_[(begin_ + index) & (ring_.size() - 1)]; }
  void grow() {
    std::vector<T> larger(ring_.empty() ? 8 : ring_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) larger[i] = std::move(at(i));
    ring_ = std::move(larger);
    begin_ = 0;
  }

  std::vector<T> ring_;  // a power of two; free places are T{}
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
};

}  // namespace slime::transport
