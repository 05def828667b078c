#pragma once

#include <memory>
#include <vector>

namespace slime {
class PeerAgentImpl;
}

namespace slime::agent {

// remember() adds an agent to a list of this process. remembered() returns the agents of the list
// that still exist, oldest first. Thread: any.
void remember(const std::shared_ptr<PeerAgentImpl>& agent);
std::vector<std::shared_ptr<PeerAgentImpl>> remembered();

}  // namespace slime::agent
