#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "transport/connect.h"

namespace slime::agent {

// Remembers providers that failed with a peer although both sides have them (a firewall, networks
// without a route between them, a device without room for another queue pair). A remembered
// provider is not offered to that peer for a while, so that new connections do not wait for it each
// time. Thread: the loop.
class Avoided {
 public:
  // Avoids `provider` for limits::kAvoidFabric from `now` on. Returns false, and avoids nothing, if
  // the table is full.
  bool add(const InstanceId& peer, const std::string& provider, const Status& cause, TimePoint now);
  // Sets `available` of each outlet whose provider is avoided for `peer` to the error of the
  // failure.
  void apply(const InstanceId& peer, std::vector<transport::Outlet>& outlets, TimePoint now) const;

 private:
  struct Entry {
    Status cause;
    TimePoint until;
  };
  std::map<std::pair<InstanceId, std::string>, Entry> entries_;  // by peer and provider
};

}  // namespace slime::agent
