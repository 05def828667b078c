#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/peer_agent.h"
#include "base/result.h"
#include "kv/broadcast.h"
#include "kv/offer.h"

namespace slime::kv {

// Names on the wire of broadcasts and shards; kv/README.md describes them. A region has its number
// after the prefix.
std::string owner_service(std::string_view name);
std::string replica_service(std::string_view name);
std::string owner_regions(std::string_view name);
std::string replica_regions(std::string_view name);
std::string shards_service(std::string_view name);
std::string shards_regions(std::string_view name);
Status check_broadcast_name(std::string_view name);

// Registers memory of the caller, which peers may read, and publishes it under prefix and number.
Result<std::vector<MemoryRegion>> publish_parts(PeerAgent& agent, std::span<const NamedMemory> parts,
                                                std::string_view prefix);
std::vector<Part> parts_of(std::span<const NamedMemory> memory);

}  // namespace slime::kv
