#include "ctrl/compat/entities.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/str.h"
#include "ctrl/wire/json_bodies.h"
#include "ctrl/wire/json_fields.h"

namespace slime::ctrl::compat {
namespace {

constexpr std::string_view kInstanceMark = "nanoctrl";  // first half of an instance id
constexpr std::string_view kMetadataKey = "nanoctrl.";  // followed by the number of the part
constexpr const char* kDefaultType = "service";

// JSON inside JSON strings.
std::string text_of(const Json* value) { return value == nullptr ? "" : dump(*value); }
Json json_of(const std::string& text) {
  if (text.empty()) return nullptr;
  Json out = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return out.is_discarded() ? Json(nullptr) : out;
}

// Reads the fields of one JSON object. Remembers the first problem; the caller checks status() at
// the end.
class Body {
 public:
  explicit Body(std::string_view body) {
    Result<Json> json = parse_json(body, Code::kInvalidArgument, "the body");
    if (json) {
      json_ = std::move(*json);
    } else {
      status_ = json.error();
    }
  }

  // Null when absent.
  const Json* value(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  std::string text(const char* key, std::string fallback = {}) {
    const Json* found = value(key);
    if (found == nullptr) return fallback;
    if (const auto* out = found->get_ptr<const std::string*>()) return *out;
    problem(str("\"", key, "\" is not a string"));
    return fallback;
  }
  std::string required(const char* key) {
    if (value(key) == nullptr) problem(str("\"", key, "\" is missing"));
    return text(key);
  }
  std::uint64_t integer(const char* key, std::uint64_t fallback, std::uint64_t max) {
    const Json* found = value(key);
    if (found == nullptr) return fallback;
    if (const auto out = integer_of(*found, max)) return *out;
    problem(str("\"", key, "\" is not an integer from 0 to ", max));
    return fallback;
  }
  std::uint32_t integer32(const char* key, std::uint32_t fallback) {
    return static_cast<std::uint32_t>(integer(key, fallback, std::numeric_limits<std::uint32_t>::max()));
  }
  // Returns the scope; "default" if the field is absent or empty.
  std::string scope() {
    std::string out = text("scope");
    return out.empty() ? "default" : checked("scope", std::move(out));
  }
  std::string name(const char* key) { return checked(key, required(key)); }
  void problem(std::string text) {
    if (status_.ok()) status_ = Status(Code::kInvalidArgument, std::move(text));
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  std::string checked(const char* key, std::string name) {
    if (Status status = check_name(key, name); !status.ok()) problem(status.text());
    return name;
  }

  Json json_ = Json::object();
  Status status_;
};

template <class T>
Result<T> finished(const Body& body, T value) {
  if (!body.status().ok()) return body.status();
  return value;
}

Json to_json(const EntityRegion& region) {
  return {{"addr", region.addr}, {"length", region.length}, {"rkey", region.rkey}, {"lkey", region.lkey}};
}

EntityRegion read_region(Body& in) {
  EntityRegion out;
  out.addr = in.integer("addr", 0, std::numeric_limits<std::uint64_t>::max());
  out.length = in.integer("length", 0, std::numeric_limits<std::uint64_t>::max());
  out.rkey = in.integer32("rkey", 0);
  out.lkey = in.integer32("lkey", 0);
  return out;
}

// Returns "host:port" of an endpoint: of an object with "host" and "port", or of a text, returned
// unchanged. Empty if the endpoint is neither.
std::string address_of(const Json& endpoint) {
  if (const auto* text = endpoint.get_ptr<const std::string*>()) return *text;
  if (!endpoint.is_object() || !endpoint.contains("host") || !endpoint.contains("port")) return {};
  const auto* host = endpoint["host"].get_ptr<const std::string*>();
  const auto* port = endpoint["port"].get_ptr<const Json::number_unsigned_t*>();
  if (host == nullptr || port == nullptr) return {};
  const bool v6 = host->find(':') != std::string::npos && !host->starts_with('[');
  return v6 ? str("[", *host, "]:", *port) : str(*host, ":", *port);
}

std::string native_address(const Entity& entity) {
  for (const std::string& address : {entity.address, address_of(json_of(entity.endpoint))}) {
    if (parse_host_port(address)) return address;
  }
  return std::string(kNoAddress);
}

// Returns the entity's fields for which a peer's record has no member, as JSON.
Json details(const Entity& entity) {
  Json out = {{"entity_type", entity.type}};
  const std::pair<const char*, const std::string&> texts[] = {
      {"address", entity.address}, {"device", entity.device}, {"link_type", entity.link_type}};
  for (const auto& [key, text] : texts) {
    if (!text.empty()) out[key] = text;
  }
  if (entity.ib_port != 1) out["ib_port"] = entity.ib_port;
  const std::pair<const char*, const std::string&> values[] = {
      {"endpoint", entity.endpoint}, {"metadata", entity.metadata}, {"resource", entity.resource}};
  for (const auto& [key, text] : values) {
    if (!text.empty()) out[key] = json_of(text);
  }
  for (const auto& [name, region] : entity.regions) out["memory_regions"][name] = to_json(region);
  return out;
}

// Converts the record of a Slime agent to an entity. Fields that the record does not have stay
// empty.
Entity from_native(const PeerInfo& peer) {
  Entity out;
  out.native = true;
  out.type = kAgentType;
  out.address = peer.address;
  if (const std::optional<HostPort> at = parse_host_port(peer.address))
    out.endpoint = dump({{"host", at->host}, {"port", at->port}, {"protocol", "slime"}});
  out.metadata = dump(Json(peer.metadata));
  for (const RegionInfo& region : peer.regions) out.regions[region.name].length = region.length_bytes;
  return out;
}

std::string join(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ",") + item;
  return str("[", out, "]");
}

}  // namespace

InstanceId new_instance() {
  InstanceId out = InstanceId::random();
  std::memcpy(out.bytes.data(), kInstanceMark.data(), kInstanceMark.size());
  return out;
}

bool registered_here(const InstanceId& instance) {
  return std::memcmp(instance.bytes.data(), kInstanceMark.data(), kInstanceMark.size()) == 0;
}

Result<Registration> to_registration(const Entity& entity, const InstanceId& instance) {
  Registration out;
  out.name = entity.id;
  out.scope = entity.scope;
  out.kind = entity.kind;
  out.instance = instance;
  out.address = native_address(entity);
  out.ttl = kTtl;
  // Escapes all characters beyond ASCII, so that cutting the text into parts never splits a
  // character.
  const std::string text = details(entity).dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr std::size_t kBytesMax = limits::kMetadataEntries * limits::kMetadataValueBytes;
  if (text.size() > kBytesMax)
    return Status(Code::kResourceExhausted,
                  str("'", entity.id, "' would take ", text.size(), " bytes, of at most ", kBytesMax,
                      ", for metadata, resource, endpoint and memory regions"));
  for (std::size_t from = 0; from < text.size(); from += limits::kMetadataValueBytes)
    out.metadata[str(kMetadataKey, from / limits::kMetadataValueBytes)] =
        text.substr(from, limits::kMetadataValueBytes);
  SLIME_TRY(check_registration(out));
  return out;
}

Entity to_entity(const PeerInfo& peer) {
  Entity out;
  if (registered_here(peer.instance)) {
    std::string text;
    for (std::size_t part = 0;; ++part) {
      const auto it = peer.metadata.find(str(kMetadataKey, part));
      if (it == peer.metadata.end()) break;
      text += it->second;
    }
    // Ignores text that is not valid JSON: these routes have not written it.
    Body in(text);
    out.type = in.text("entity_type", kDefaultType);
    out.address = in.text("address");
    out.device = in.text("device");
    out.link_type = in.text("link_type");
    out.ib_port = in.integer32("ib_port", 1);
    out.endpoint = text_of(in.value("endpoint"));
    out.metadata = text_of(in.value("metadata"));
    out.resource = text_of(in.value("resource"));
    if (const Json* regions = in.value("memory_regions"); regions != nullptr && regions->is_object()) {
      for (const auto& [name, value] : regions->items()) {
        Body region(dump(value));
        out.regions[name] = read_region(region);
      }
    }
  } else {
    out = from_native(peer);
  }
  out.scope = peer.scope;
  out.id = peer.name;
  out.kind = peer.kind;
  return out;
}

Result<Entity> decode_entity(std::string_view body) {
  Body in(body);
  Entity out;
  out.scope = in.scope();
  out.type = in.text("entity_type", kDefaultType);
  out.id = in.name("entity_id");
  out.kind = in.required("kind");
  out.endpoint = text_of(in.value("endpoint"));
  out.metadata = text_of(in.value("metadata"));
  out.resource = text_of(in.value("resource"));
  return finished(in, std::move(out));
}

Result<EntityRef> decode_entity_ref(std::string_view body) {
  Body in(body);
  EntityRef out{in.scope(), in.text("entity_type", kDefaultType), in.name("entity_id")};
  return finished(in, std::move(out));
}

Result<EntityRef> decode_agent_ref(std::string_view body) {
  Body in(body);
  EntityRef out{in.scope(), std::string(kAgentType), in.name("agent_name")};
  return finished(in, std::move(out));
}

Result<EntityFilter> decode_filter(std::string_view body) {
  Body in(body);
  EntityFilter out{in.scope(), in.text("entity_type"), in.text("kind")};
  return finished(in, std::move(out));
}

Result<AgentRequest> decode_agent(std::string_view body) {
  Body in(body);
  AgentRequest out;
  out.agent.scope = in.scope();
  out.agent.type = kAgentType;
  out.agent.kind = kAgentType;
  if (!in.text("alias").empty()) out.agent.id = in.name("alias");
  out.name_prefix = in.text("name_prefix", std::string(kAgentType));
  out.agent.address = in.required("address");
  out.agent.device = in.text("device");
  out.agent.link_type = in.text("link_type");
  out.agent.ib_port = in.integer32("ib_port", 1);
  out.agent.resource = text_of(in.value("resource"));
  return finished(in, std::move(out));
}

Result<RegionRequest> decode_region(std::string_view body) {
  Body in(body);
  RegionRequest out;
  out.agent = {in.scope(), std::string(kAgentType), in.name("agent_name")};
  out.name = in.required("mr_name");
  for (const char* key : {"addr", "length", "rkey"}) {
    if (in.value(key) == nullptr) in.problem(str("\"", key, "\" is missing"));
  }
  out.region = read_region(in);
  return finished(in, std::move(out));
}

Result<RegionQuery> decode_region_query(std::string_view body) {
  Body in(body);
  RegionQuery out;
  out.agent = {in.scope(), std::string(kAgentType), in.name("dst")};
  out.name = in.required("mr_name");
  return finished(in, std::move(out));
}

Result<TopologyRequest> decode_topology(std::string_view body) {
  Body in(body);
  TopologyRequest out;
  out.scope = in.scope();
  if (const Json* peers = in.value("target_peers"); peers != nullptr && peers->is_array()) {
    for (const Json& peer : *peers) {
      const auto* name = peer.get_ptr<const std::string*>();
      if (name == nullptr) {
        in.problem("\"target_peers\" has an entry that is not a string");
        break;
      }
      out.target_peers.push_back(*name);
    }
  } else {
    in.problem("\"target_peers\" is missing or not an array");
  }
  return finished(in, std::move(out));
}

Status decode_empty(std::string_view body) { return body.empty() ? Status() : Body(body).status(); }

std::string encode_status(std::string_view status, std::string_view message) {
  return dump({{"status", status}, {"message", message}});
}

std::string encode_no_redis() {
  return dump({{"status", "ok"},
               {"redis_address", ""},
               {"message", "no Redis is used: this nanoctrl keeps what is registered itself"}});
}

std::string encode_started(const Entity& agent) {
  Json out = {{"status", "ok"},
              {"name", agent.id},
              {"redis_address", ""},
              {"message", "no Redis is used: agents are found through /query"}};
  if (!agent.resource.empty()) out["resource"] = json_of(agent.resource);
  return dump(out);
}

std::string encode_entity(const Entity& entity) {
  Json out = {{"entity_type", entity.type},
              {"entity_id", entity.id},
              {"id", entity.id},
              {"kind", entity.kind},
              {"endpoint", json_of(entity.endpoint)},
              {"metadata", entity.metadata.empty() ? Json::object() : json_of(entity.metadata)},
              {"resource", json_of(entity.resource)}};
  if (!entity.address.empty()) out["address"] = entity.address;
  return dump(out);
}

std::string encode_entity_info(const std::optional<Entity>& entity) {
  if (!entity) return R"({"entity_info":null,"status":"not_found"})";
  return str(R"({"entity_info":)", encode_entity(*entity), R"(,"status":"ok"})");
}

std::string encode_agent(const Entity& agent) {
  Json keys = Json::array();
  for (const auto& [name, region] : agent.regions) keys.push_back(name);
  return dump({{"name", agent.id},
               {"device", agent.device},
               {"ib_port", agent.ib_port},
               {"link_type", agent.link_type},
               {"address", agent.address},
               {"resource", json_of(agent.resource)},
               {"memory_keys", std::move(keys)}});
}

std::string encode_entities(const std::vector<std::string>& entities) {
  return str(R"({"entities":)", join(entities), R"(,"status":"ok"})");
}
std::string encode_agents(const std::vector<std::string>& agents) { return join(agents); }

std::string encode_region(const std::optional<EntityRegion>& region) {
  return dump({{"mr_info", region ? to_json(*region) : Json(nullptr)}});
}

void translate_error(ApiReply& reply) {
  const std::optional<wire::Error> error = wire::decode_error(reply.body);
  if (!error) return;
  reply.body =
      encode_status("error", error->hint.empty() ? error->message : str(error->message, "; ", error->hint));
}

std::optional<std::string> decode_error(std::string_view body) {
  Body in(body);
  if (in.text("status") != "error") return std::nullopt;
  std::string out = in.required("message");
  if (!in.status().ok()) return std::nullopt;
  return out;
}

}  // namespace slime::ctrl::compat
