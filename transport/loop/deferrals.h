#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace slime::transport {

// Work that a loop runs once, in its next turn. Cheaper than a posted task: it needs no lock and no
// allocation.
class Deferred {
 public:
  virtual void run_deferred() noexcept = 0;

 protected:
  ~Deferred() = default;
};

// The deferred work of one loop. Urgent work must run in the next turn; lazy work may wait until
// the loop runs for other work. Thread: the one that drives the loop.
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
  // Removes `deferred` if it has not run yet. May be called inside run_deferred() of other work.
  void drop(Deferred& deferred) {
    for (auto* list : {&waiting_, &running_})
      std::replace(list->begin(), list->end(), &deferred, static_cast<Deferred*>(nullptr));
  }
  // Runs all waiting work in order. Work that is added meanwhile runs in the next call. Returns
  // whether any work waited.
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
  // work that run() is going through; null: has run, or was dropped
  std::vector<Deferred*> running_;
  bool urgent_ = false;
};

}  // namespace slime::transport
