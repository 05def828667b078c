#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "transport/connect.h"

namespace slime::agent {

// Providers that failed with a peer although both have them (a firewall, networks without a route between
// them, a device without room for one more): not offered to it for a while, so that its connections do not
// wait for them each time. Thread: the loop.
class Avoided {
 public:
  // Until `now` and limits::kAvoidFabric.
  void add(const InstanceId& peer, std::string provider, const Status& cause, TimePoint now);
  // Those outlets are not available, with the cause.
  void apply(const InstanceId& peer, std::vector<transport::Outlet>& outlets, TimePoint now) const;

 private:
  struct Entry {
    std::string provider;
    Status cause;
    TimePoint until;
  };
  std::map<InstanceId, Entry> entries_;  // the last one that failed
};

}  // namespace slime::agent
