#pragma once

#include <deque>
#include <memory>

#include "agent/connecting/named_peer.h"
#include "base/clock.h"
#include "base/future_state.h"
#include "base/mutex.h"
#include "base/result.h"

namespace slime::agent {

// The connections that peers have opened to the agent, and that accept() has not returned yet, in
// the order in which they became ready. Thread: any.
class PendingPeers {
 public:
  // Adds the peer of a connection. Drops the oldest at limits::kPendingPeers.
  void push(std::shared_ptr<NamedPeer> peer);
  // Takes the oldest; waits for one with `driver`. Errors: kDeadlineExceeded; kUnavailable after
  // close().
  Result<std::shared_ptr<NamedPeer>> take(Driver& driver, Nanos timeout);
  // Ends all take(), now and later.
  void close();

 private:
  [[nodiscard]] bool ready() SLIME_REQUIRES(mutex_) { return closed_ || !peers_.empty(); }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<NamedPeer>> peers_ SLIME_GUARDED_BY(mutex_);
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
};

}  // namespace slime::agent
