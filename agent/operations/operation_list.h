#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace slime::agent {

// Base of an object that is in at most one list, and leaves the list when it is destroyed. Thread:
// the loop.
class Listed {
 public:
  Listed() = default;
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;
  // Adds `weight` to `count` until this object leaves, listed or not. Thread: the maker's, before
  // the object is shared.
  void count_in(std::atomic<std::size_t>& count, std::size_t weight) {
    count_ = &count;
    weight_ = weight;
    count.fetch_add(weight, std::memory_order_relaxed);
  }
  void leave() {
    if (auto* const count = std::exchange(count_, nullptr))
      count->fetch_sub(weight_, std::memory_order_relaxed);
    if (next_ == nullptr) return;
    previous_->next_ = next_;
    next_->previous_ = previous_;
    previous_ = next_ = nullptr;
  }

 protected:
  ~Listed() { leave(); }

 private:
  template <class T>
  friend class ListOf;
  Listed* previous_ = nullptr;
  Listed* next_ = nullptr;
  std::atomic<std::size_t>* count_ = nullptr;
  std::size_t weight_ = 0;
};

// An intrusive list of the operations in flight, in the order in which they began. Costs four
// stores for each operation and no memory. Does not own its elements. Thread: the loop.
template <class T>
class ListOf {
 public:
  ListOf() { end_.previous_ = end_.next_ = &end_; }
  ~ListOf() {
    while (end_.next_ != &end_) end_.next_->leave();
    end_.previous_ = end_.next_ = nullptr;
  }
  ListOf(const ListOf&) = delete;
  ListOf& operator=(const ListOf&) = delete;

  void add(T& item) {
    Listed& at = item;
    at.previous_ = end_.previous_;
    at.next_ = &end_;
    end_.previous_->next_ = &at;
    end_.previous_ = &at;
  }
  // Calls fn(const T&), oldest first. `fn` must not change the list.
  template <class F>
  void for_each(F&& fn) const {
    for (const Listed* at = end_.next_; at != &end_; at = at->next_) fn(static_cast<const T&>(*at));
  }

 private:
  struct End final : Listed {};
  End end_;
};

}  // namespace slime::agent
