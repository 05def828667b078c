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

// The JSON bodies of DLSlime's NanoCtrl, and their conversion to and from a peer's record. Decoding
// is lenient: ignores unknown fields, and treats null as absent. No function throws.
namespace slime::ctrl::compat {

inline constexpr Nanos kTtl = std::chrono::seconds(60);  // its clients renew every 15 s
// Address in the record of an entity that has no address like "host:port". RFC 2606 reserves
// ".invalid", so no such host exists.
inline constexpr std::string_view kNoAddress = "unknown.invalid:1";
inline constexpr std::string_view kAgentType = "agent";

// A memory region of an entity, as its owner describes it: address, length in bytes, and RDMA keys.
struct EntityRegion {
  std::uint64_t addr = 0, length = 0;
  std::uint32_t rkey = 0, lkey = 0;
};

// A peer in the form of NanoCtrl. `endpoint`, `metadata` and `resource` are JSON values as text;
// empty when absent.
struct Entity {
  std::string scope = "default";
  std::string type;
  std::string id;
  std::string kind;
  std::string endpoint, metadata, resource;
  std::string address;  // address of an agent; often an IP address without a port
  std::string device, link_type;
  std::uint32_t ib_port = 1;
  std::map<std::string, EntityRegion> regions;
  // true: a Slime agent, registered through nanoctrl's own routes; not changed by these routes
  bool native = false;
};

// new_instance() makes an instance id for a record of these routes, with a mark in its first half.
// registered_here() returns whether an id has that mark.
InstanceId new_instance();
bool registered_here(const InstanceId& instance);

// to_registration() converts an entity to a peer's record. Fields that have no member in a record
// go into its metadata. kInvalidArgument when a field is invalid; kResourceExhausted when the
// metadata would be too large.
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
  Entity agent;             // an empty id: nanoctrl chooses one
  std::string name_prefix;  // of a chosen id
};
struct RegionRequest {
  EntityRef agent;
  std::string name;
  EntityRegion region;
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
// encode_entity() and encode_agent() return one element for encode_entities() and encode_agents().
std::string encode_entity(const Entity& entity);
std::string encode_agent(const Entity& agent);
std::string encode_entities(const std::vector<std::string>& entities);
std::string encode_agents(const std::vector<std::string>& agents);
std::string encode_region(const std::optional<EntityRegion>& region);

// Converts an error reply of nanoctrl to NanoCtrl's form: {"status": "error", "message": ...}.
void translate_error(ApiReply& reply);
// Returns the message of an error in the form of translate_error(); empty when the body is not an
// error in this form.
std::optional<std::string> decode_error(std::string_view body);

}  // namespace slime::ctrl::compat
