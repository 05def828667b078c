#include "agent/connecting/pending_peers.h"

#include <utility>

#include "agent/limits.h"
#include "base/log.h"

namespace slime::agent {

void PendingPeers::push(std::shared_ptr<NamedPeer> peer) {
  std::shared_ptr<NamedPeer> dropped;
  {
    const MutexLock lock(mutex_);
    if (closed_) return;
    if (peers_.size() >= limits::kPendingPeers) {
      dropped = std::move(peers_.front());
      peers_.pop_front();
    }
    peers_.push_back(std::move(peer));
  }
  changed_.notify_one();
  if (dropped != nullptr) {
    SLIME_LOG(LogLevel::kWarning, "agent", "accept() will not return ", dropped->name, ": ",
              limits::kPendingPeers, " connections wait for it already");
  }
}

Result<std::shared_ptr<NamedPeer>> PendingPeers::take(Driver& driver, Nanos timeout) {
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
    if (!peers_.empty()) {
      std::shared_ptr<NamedPeer> out = std::move(peers_.front());
      peers_.pop_front();
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
    peers_.clear();
  }
  changed_.notify_all();
}

}  // namespace slime::agent
