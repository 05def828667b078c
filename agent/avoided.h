#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "transport/connect.h"

namespace slime::agent {

// Fabrics that carried nothing to a peer although both have them (a firewall, networks without a route
// between them): not offered to it for a while, so that its connections do not wait for them each time.
// Thread: the loop.
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
  std::map<InstanceId, Entry> entries_;  // only one provider of an agent can be like that
};

}  // namespace slime::agent
