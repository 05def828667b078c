#pragma once

#include <memory>
#include <vector>

namespace slime {
class PeerAgentImpl;
}

namespace slime::agent {

// The agents of this process in the order of their start, until they are closed and released.
// Thread: any.
void remember(const std::shared_ptr<PeerAgentImpl>& agent);
std::vector<std::shared_ptr<PeerAgentImpl>> remembered();

}  // namespace slime::agent
