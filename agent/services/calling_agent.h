#pragma once

#include <string>

#include "agent/operations/starter.h"
#include "agent/services/discovery.h"
#include "base/clock.h"

namespace slime::agent {

// The parts of an agent that a call of a service uses. A shared_ptr to this object keeps the agent
// alive.
struct CallingAgent {
  OperationStarter& starter;
  Discovery& discovery;
  const std::string& scope;
  const std::string& ctrl_url;
  Nanos timeout;  // default timeout of a call
};

}  // namespace slime::agent
