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

// The commands of one engine that are not yet in the log, and the waiters of all commands without
// an outcome. Commands have consecutive numbers. Thread: one at a time.
class CommandQueue {
 public:
  // Waits for the outcome of one command.
  struct Waiter {
    CondVar done;  // notified once `outcome` is set
    std::optional<Outcome> outcome;
  };

  // Returns a new number, for the next command or for another entry of the log.
  std::uint64_t next_number() { return ++last_number_; }
  // Returns kResourceExhausted when too many commands, or too many bytes of commands, are queued.
  [[nodiscard]] Status check_room() const;
  // Queues the entry of a command. `waiter` must exist until it has its outcome or remove() was
  // called.
  void add(std::uint64_t number, EncodedEntry entry, Waiter& waiter);
  // Removes the command's waiter, and its entry if it is still queued. Returns true if the entry
  // was queued, in which case the command was never executed.
  bool remove(std::uint64_t number);
  // Moves queued entries to the end of `out`, in order, as many as one append may have.
  void take(std::vector<EncodedEntry>& out);
  // Passes the outcome of a command to its waiter. Does nothing if the command has no waiter.
  void finish(std::uint64_t number, Outcome outcome);
  // Passes an error to every waiter, and removes all queued entries. A command whose entry had left
  // the queue may have been executed.
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
