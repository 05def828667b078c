#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/log_format.h"

namespace slime::ctrl {

// The numbered commands of one engine that wait for their turn in the log or for their outcome.
// Each command has a waiter until its outcome is there or the waiter is removed. Thread: one at a
// time.
class CommandQueue {
 public:
  // Waits for the outcome of one command.
  struct Waiter {
    CondVar done;  // notified once `outcome` is set
    std::optional<Outcome> outcome;
  };

  // Returns the number of the next command, or of an entry without a waiter.
  std::uint64_t next_number() { return ++last_number_; }
  // kResourceExhausted when too many commands, or bytes of commands, are queued.
  [[nodiscard]] Status check_room() const;
  // Queues the command's entry. `waiter` outlives its outcome, or is removed.
  void add(std::uint64_t number, EncodedEntry entry, Waiter& waiter);
  // Forgets the waiter, and the entry if it is still queued. Returns whether it was: then the
  // command never had an effect.
  bool remove(std::uint64_t number);
  // Moves queued entries to the end of `out`, in order, up to the limits of one append.
  void take(std::vector<EncodedEntry>& out);
  // Sets the outcome of the command, if it has a waiter.
  void finish(std::uint64_t number, Outcome outcome);
  // Fails every waiter and clears the queue. Commands that had left the queue may have been
  // executed.
  void fail_all(const Status& status);
  [[nodiscard]] bool empty() const { return queue_.empty(); }  // no entry is queued

 private:
  struct Queued {
    std::uint64_t number = 0;
    EncodedEntry entry;
  };
  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, Waiter*> waiters_;
  std::deque<Queued> queue_;
  std::size_t queue_bytes_ = 0;
};

}  // namespace slime::ctrl
