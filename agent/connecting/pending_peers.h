#pragma once

#include <deque>
#include <string>

#include "base/clock.h"
#include "base/future_state.h"
#include "base/mutex.h"
#include "base/result.h"

namespace slime::agent {

// The peers that have opened a connection to the agent, and that accept() has not returned yet, in
// the order in which they connected. Thread: any.
class PendingPeers {
 public:
  // Adds a peer by its name, unless it is there. Drops the oldest at limits::kPendingPeers.
  void push(const std::string& name);
  // Takes the oldest; waits for one with `driver`. Errors: kDeadlineExceeded; kUnavailable after
  // close().
  Result<std::string> take(Driver& driver, Nanos timeout);
  // Ends all take(), now and later.
  void close();

 private:
  [[nodiscard]] bool ready() SLIME_REQUIRES(mutex_) { return closed_ || !names_.empty(); }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> names_ SLIME_GUARDED_BY(mutex_);
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
};

}  // namespace slime::agent
