#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace slime::transport {

// A source that each turn of a loop polls, because looking at it costs less than waiting for it.
class Poller {
 public:
  // Returns true if there was work; then the loop does not block after this turn.
  virtual bool poll_once() noexcept = 0;
  // Prepares for a loop that is about to block: makes sure that a descriptor which the loop watches
  // becomes readable when something comes, then looks once more. Returns false if something came
  // meanwhile, or there is no such descriptor; then the loop must not block.
  virtual bool arm() noexcept { return false; }

 protected:
  ~Poller() = default;
};

// The pollers of one loop. Thread: the driver's.
class Pollers {
 public:
  void add(Poller& poller) { pollers_.push_back(&poller); }
  // A poller may remove itself and others while it is polled.
  void remove(Poller& poller) {
    // poll() may be walking over the list, so it erases the entry.
    std::replace(pollers_.begin(), pollers_.end(), &poller, static_cast<Poller*>(nullptr));
    removed_ = true;
  }
  [[nodiscard]] bool empty() const { return pollers_.empty(); }
  // Polls each poller once. Returns whether any had work.
  bool poll() {
    bool ran = false;
    for (std::size_t i = 0; i < pollers_.size(); ++i) {
      if (pollers_[i] != nullptr) ran = pollers_[i]->poll_once() || ran;
    }
    if (std::exchange(removed_, false)) std::erase(pollers_, nullptr);
    return ran;
  }
  // Arms the pollers. Returns whether all are armed.
  bool arm() {
    return std::all_of(pollers_.begin(), pollers_.end(),
                       [](Poller* poller) { return poller == nullptr || poller->arm(); });
  }

 private:
  std::vector<Poller*> pollers_;  // null: removed
  bool removed_ = false;          // some are null
};

}  // namespace slime::transport
