#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ctrl/http/http.h"
#include "ctrl/types.h"

// The JSON bodies of DLSlime's NanoCtrl, and how what they say fits into a peer's record. Requests are read
// leniently: what is unknown is ignored, and null means absent. Nothing here throws.
namespace slime::ctrl::compat {

inline constexpr Nanos kTtl = std::chrono::seconds(60);  // its clients renew every 15 s
// The address of a peer that gave none like "host:port". No such host exists, by RFC 2606.
inline constexpr std::string_view kNoAddress = "unknown.invalid:1";
inline constexpr std::string_view kAgentType = "agent";

struct MemoryRegion {
  std::uint64_t addr = 0, length = 0;
  std::uint32_t rkey = 0, lkey = 0;
};

// What these routes know of one peer. JSON of any type is kept as text, empty where it is absent.
struct Entity {
  std::string scope = "default";
  std::string type;
  std::string id;
  std::string kind;
  std::string endpoint, metadata, resource;
  std::string address;  // of agents; often an IP address without a port
  std::string device, link_type;
  std::uint32_t ib_port = 1;
  std::map<std::string, MemoryRegion> regions;
  bool native = false;  // it registered as a slime agent: these routes show it, and leave it alone
};

// Which records were made by these routes: nanoctrl made their instance ids, with a mark in them.
InstanceId new_instance();
bool registered_here(const InstanceId& instance);

// kInvalidArgument when it does not fit; kResourceExhausted when what the record has no field for is larger
// than its metadata.
Result<Registration> to_registration(const Entity& entity, const InstanceId& instance);
Entity to_entity(const PeerInfo& peer);

struct EntityRef {
  std::string scope, type, id;
};
struct EntityFilter {
  std::string scope;
  std::string type, kind;  // empty: any
};
struct AgentRequest {
  Entity agent;             // its id is empty when nanoctrl is to choose one
  std::string name_prefix;  // then it starts with this
};
struct RegionRequest {
  EntityRef agent;
  std::string name;
  MemoryRegion region;
};
struct RegionQuery {
  EntityRef agent;
  std::string name;
};
struct TopologyRequest {
  std::string scope;
  std::vector<std::string> target_peers;
};
Result<Entity> decode_entity(std::string_view body);
Result<EntityRef> decode_entity_ref(std::string_view body);
Result<EntityRef> decode_agent_ref(std::string_view body);
Result<EntityFilter> decode_filter(std::string_view body);
Result<AgentRequest> decode_agent(std::string_view body);
Result<RegionRequest> decode_region(std::string_view body);
Result<RegionQuery> decode_region_query(std::string_view body);
Result<TopologyRequest> decode_topology(std::string_view body);
Status decode_empty(std::string_view body);

std::string encode_status(std::string_view status, std::string_view message);
std::string encode_no_redis();
std::string encode_started(const Entity& agent);
std::string encode_entity_info(const std::optional<Entity>& entity);
// The elements of lists, and lists of such.
std::string encode_entity(const Entity& entity);
std::string encode_agent(const Entity& agent);
std::string encode_entities(const std::vector<std::string>& entities);
std::string encode_agents(const std::vector<std::string>& agents);
std::string encode_region(const std::optional<MemoryRegion>& region);

// The same refusal as these clients read it: {"status": "error", "message"}.
void translate_error(ApiReply& reply);
// The message of such an error; nothing when the body is none.
std::optional<std::string> decode_error(std::string_view body);

}  // namespace slime::ctrl::compat
