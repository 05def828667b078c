#pragma once

#include <map>
#include <string>
#include <utility>
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
  // Until `now` and limits::kAvoidFabric. False: there are too many to remember one more.
  bool add(const InstanceId& peer, const std::string& provider, const Status& cause, TimePoint now);
  // Those outlets are not available, with the cause.
  void apply(const InstanceId& peer, std::vector<transport::Outlet>& outlets, TimePoint now) const;

 private:
  struct Entry {
    Status cause;
    TimePoint until;
  };
  std::map<std::pair<InstanceId, std::string>, Entry> entries_;  // by peer and provider
};

}  // namespace slime::agent
