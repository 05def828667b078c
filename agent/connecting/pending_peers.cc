#include "agent/connecting/pending_peers.h"

#include <algorithm>
#include <utility>

#include "agent/limits.h"
#include "base/log.h"
#include "base/str.h"

namespace slime::agent {

void PendingPeers::push(const std::string& name) {
  std::string dropped;
  {
    const MutexLock lock(mutex_);
    if (closed_ || std::find(names_.begin(), names_.end(), name) != names_.end()) return;
    if (names_.size() >= limits::kPendingPeers) {
      dropped = std::move(names_.front());
      names_.pop_front();
    }
    names_.push_back(name);
  }
  changed_.notify_one();
  if (!dropped.empty()) {
    SLIME_LOG(LogLevel::kWarning, "agent", "accept() will not return ", dropped, ": ", limits::kPendingPeers,
              " peers wait for it already");
  }
}

Result<std::string> PendingPeers::take(Driver& driver, Nanos timeout) {
  const TimePoint deadline = deadline_after(steady_clock().now(), timeout);
  while (true) {
    driver.wait(
        [this] {
          const MutexLock lock(mutex_);
          return ready();
        },
        deadline,
        [this, deadline] {
          const MutexLock lock(mutex_);
          changed_.wait_until(mutex_, deadline, [this]() SLIME_REQUIRES(mutex_) { return ready(); });
        });
    const MutexLock lock(mutex_);
    if (closed_) return Status(Code::kUnavailable, "the agent is closed");
    if (!names_.empty()) {
      std::string out = std::move(names_.front());
      names_.pop_front();
      return out;
    }
    // Another thread has taken it, or the time is over.
    if (steady_clock().now() >= deadline)
      return Status(Code::kDeadlineExceeded, "no peer has connected before the timeout");
  }
}

void PendingPeers::close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    names_.clear();
  }
  changed_.notify_all();
}

}  // namespace slime::agent
