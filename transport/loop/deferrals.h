#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace slime::transport {

// Work that a loop runs once in its next turn, without the lock and the allocation of a posted
// task.
class Deferred {
 public:
  virtual void run_deferred() noexcept = 0;

 protected:
  ~Deferred() = default;
};

// The deferred work of one loop. Urgent work must run soon; lazy work may wait until the loop runs
// for other work. Thread: the driver's.
class Deferrals {
 public:
  // Runs `deferred` once for each call.
  void add(Deferred& deferred) {
    waiting_.push_back(&deferred);
    urgent_ = true;
  }
  void add_lazily(Deferred& deferred) { waiting_.push_back(&deferred); }
  // Makes lazy work urgent.
  void hurry() { urgent_ = true; }
  [[nodiscard]] bool urgent() const { return urgent_; }
  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  // Forgets `deferred`, if it waits. Deferred work may drop other work.
  void drop(Deferred& deferred) {
    for (auto* list : {&waiting_, &running_})
      std::replace(list->begin(), list->end(), &deferred, static_cast<Deferred*>(nullptr));
  }
  // Runs all work that waits, in order; work that it adds runs in the next call. Returns whether
  // any waited.
  bool run() {
    urgent_ = false;
    if (waiting_.empty()) return false;
    running_.swap(waiting_);
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (Deferred* const next = std::exchange(running_[i], nullptr)) next->run_deferred();
    }
    running_.clear();
    return true;
  }

 private:
  std::vector<Deferred*> waiting_;  // null: dropped
  std::vector<Deferred*> running_;  // the work of run(); null: has run, or was dropped
  bool urgent_ = false;
};

}  // namespace slime::transport
