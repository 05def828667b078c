#pragma once

#include <string>

#include "agent/operations/starter.h"
#include "agent/services/discovery.h"
#include "base/clock.h"

namespace slime::agent {

// What a call of a service needs of the agent that makes it. Part of that agent: a shared pointer
// to it keeps the agent alive.
struct CallingAgent {
  OperationStarter& starter;
  Discovery& discovery;
  const std::string& scope;
  const std::string& ctrl_url;
  Nanos timeout;  // of calls that say none
};

}  // namespace slime::agent
