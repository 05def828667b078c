#pragma once

#include <atomic>
#include <utility>

namespace slime::transport {

// Whether the thread of a loop stays aside, because callers drive the loop again and again: then
// the thread only looks now and then, and callers that stop driving arm nothing and wake no thread.
// Thread: the one that drives the loop, unless it says otherwise.
class Aside {
 public:
  // Thread: any.
  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }
  void enter() { on_.store(true, std::memory_order_relaxed); }
  void end() { on_.store(false, std::memory_order_relaxed); }
  // Ends it, and forgets that callers have driven: the one that drives is about to sleep.
  void leave() {
    forget_help();
    end();
  }
  // Notes that a caller has driven inside Loop::wait().
  void note_help() { helped_ = true; }
  void forget_help() { helped_ = false; }
  // Returns whether one has since the loop's thread last decided.
  [[nodiscard]] bool helped() const { return helped_; }
  // The loop's thread decides: it stays aside if a caller has driven since it last decided, unless
  // `needed`. Returns whether it does.
  bool decide(bool needed) {
    const bool stays = std::exchange(helped_, false) && !needed;
    on_.store(stays, std::memory_order_relaxed);
    return stays;
  }
  // Notes that a caller has begun an operation beside others in flight.
  void note_many() { many_ = true; }
  // Returns whether one has since the last call.
  bool take_many() { return std::exchange(many_, false); }

 private:
  std::atomic<bool> on_{false};
  bool helped_ = false;
  bool many_ = false;
};

}  // namespace slime::transport
