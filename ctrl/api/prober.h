#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/ids.h"

namespace slime::ctrl {

enum class ProbeResult {
  kSame,    // that instance answered
  kGone,    // nothing listens there, or another instance does
  kSilent,  // no conclusive answer
};

// Asks the listener at `address` ("host:port") whether it is `instance` (base/probe.h). Blocks for
// at most `timeout`. Returns kSilent without a probe if the host is neither numeric nor
// "localhost", because resolving a name takes unbounded time. Thread: any.
ProbeResult probe_instance(const std::string& address, const InstanceId& instance, Nanos timeout);

using Prober = std::function<ProbeResult(const std::string& address, const InstanceId& instance)>;

}  // namespace slime::ctrl
