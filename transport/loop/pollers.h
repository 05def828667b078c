#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace slime::transport {

// A source of work that each turn of a loop polls, because polling costs less than waiting for an
// event.
class Poller {
 public:
  // Returns true if there was work: the loop then does not block after this turn.
  virtual bool poll_once() noexcept = 0;
  // Called when the loop is about to block. Makes sure that new work makes a watched descriptor
  // readable, then looks for work once more. Returns false if there is work, or no such descriptor:
  // the loop then does not block.
  virtual bool arm() noexcept { return false; }

 protected:
  ~Poller() = default;
};

// The pollers of one loop. Thread: the one that drives the loop.
class Pollers {
 public:
  void add(Poller& poller) { pollers_.push_back(&poller); }
  // May be called inside poll_once(), for any poller.
  void remove(Poller& poller) {
    // Leaves the entry as null, because poll() may be walking over the list: poll() erases the
    // entry.
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
