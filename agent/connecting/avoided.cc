#include "agent/connecting/avoided.h"

#include "agent/limits.h"
#include "base/str.h"

namespace slime::agent {

bool Avoided::add(const InstanceId& peer, const std::string& provider, const Status& cause, TimePoint now) {
  std::erase_if(entries_, [now](const auto& entry) { return entry.second.until <= now; });
  if (entries_.size() >= limits::kRememberedPeers) return false;
  Status told(Code::kUnavailable, str("it failed with this peer: ", cause.text()));
  entries_[{peer, provider}] = {std::move(told), deadline_after(now, limits::kAvoidFabric)};
  return true;
}

void Avoided::apply(const InstanceId& peer, std::vector<transport::Outlet>& outlets, TimePoint now) const {
  if (entries_.empty()) return;
  for (transport::Outlet& outlet : outlets) {
    const auto found = entries_.find({peer, outlet.provider});
    if (found != entries_.end() && found->second.until > now) outlet.available = found->second.cause;
  }
}

}  // namespace slime::agent
