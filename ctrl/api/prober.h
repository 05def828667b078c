#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/ids.h"

namespace slime::ctrl {

enum class ProbeResult {
  kSame,    // that instance is there
  kGone,    // nobody listens there, or somebody else does: the instance is no more
  kSilent,  // no answer that decides it
};

// Asks the listener at `address` ("host:port") whether it is `instance` (see base/probe.h). Bounded by
// `timeout`. Only numeric hosts and "localhost" are asked, because resolving a name has no time limit; any
// other is kSilent. Blocks. Thread: any.
ProbeResult probe_instance(const std::string& address, const InstanceId& instance, Nanos timeout);

using Prober = std::function<ProbeResult(const std::string& address, const InstanceId& instance)>;

}  // namespace slime::ctrl
