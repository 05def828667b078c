#include "agent/avoided.h"

#include <utility>

#include "agent/limits.h"
#include "base/str.h"

namespace slime::agent {

void Avoided::add(const InstanceId& peer, std::string provider, const Status& cause, TimePoint now) {
  std::erase_if(entries_, [now](const auto& entry) { return entry.second.until <= now; });
  if (entries_.size() >= limits::kRememberedPeers) return;
  Status told(Code::kUnavailable, str("it failed with this peer: ", cause.text()));
  entries_[peer] = {std::move(provider), std::move(told), deadline_after(now, limits::kAvoidFabric)};
}

void Avoided::apply(const InstanceId& peer, std::vector<transport::Outlet>& outlets, TimePoint now) const {
  const auto found = entries_.find(peer);
  if (found == entries_.end() || found->second.until <= now) return;
  for (transport::Outlet& outlet : outlets) {
    if (outlet.provider == found->second.provider) outlet.available = found->second.cause;
  }
}

}  // namespace slime::agent
