#include "agent/endpoint.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/address.h"
#include "base/str.h"
#include "base/utf8.h"

namespace slime {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kInfoBytes = 4096;  // far more than to_json() makes

Status no_info(std::string_view why) {
  return Status(Code::kInvalidArgument, str("this is not the info of an endpoint: ", why));
}

// Returns the text at `key`; empty if there is none.
std::string text_at(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

Result<EndpointInfo> parse_json(std::string_view text) {
  const Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) return no_info("neither a JSON object nor \"host:port\"");
  EndpointInfo out;
  out.name = text_at(object, "name");
  out.address = text_at(object, "address");
  if (const auto address = Address::parse(out.address); !address)
    return no_info(str("\"address\": ", address.status().text()));
  const auto instance = InstanceId::parse(text_at(object, "instance"));
  if (!instance) return no_info("\"instance\" is not an id of 32 digits");
  out.instance = *instance;
  return out;
}

}  // namespace

std::string EndpointInfo::to_json() const {
  const Json out{{"name", name}, {"address", address}, {"instance", instance.to_string()}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<EndpointInfo> EndpointInfo::parse(std::string_view text) {
  if (text.size() > kInfoBytes) return no_info(str(text.size(), " bytes are too many"));
  if (!is_utf8(text)) return no_info("not UTF-8");
  if (text.find('{') != std::string_view::npos) return parse_json(text);
  if (const auto address = Address::parse(text); !address)
    return no_info(str("neither a JSON object nor \"host:port\": ", address.status().text()));
  EndpointInfo out;
  out.address = text;
  return out;
}

Result<Endpoint> Endpoint::create(PeerAgentOptions options) {
  if (!options.ctrl_url.empty())
    return Status(Code::kInvalidArgument, "an endpoint has no registry (ctrl_url): start a PeerAgent");
  options.accepts = true;
  auto agent = PeerAgent::start(std::move(options));
  if (!agent) return std::move(agent).error();
  return Endpoint(std::move(*agent));
}

EndpointInfo EndpointInfo::of(const PeerAgent& agent) {
  return {agent.name(), agent.address(), agent.instance()};
}

Result<Peer> connect(PeerAgent& agent, const EndpointInfo& to, Nanos timeout) {
  auto peer = agent.peer(to.address).of_connection(timeout);
  if (!peer) return peer;
  const PeerInfo found = peer->info();
  if (to.instance.is_zero() || found.instance.is_zero() || found.instance == to.instance) return peer;
  // The connection stays: others may use it, also if it was made before this.
  return Status(Code::kUnavailable,
                str(to.address, " belongs to ", found.peer, " now (instance ", found.instance.to_string(),
                    "), not to ", to.name, " (", to.instance.to_string(), "): ask for its new info"));
}

Result<Peer> Endpoint::connect(std::string_view to, Nanos timeout) {
  const auto info = EndpointInfo::parse(to);
  if (!info) return info.status();
  return connect(*info, timeout);
}

Result<MemoryRegion> Endpoint::register_memory(std::string_view name, void* data, std::size_t bytes,
                                               Rights rights) {
  return published(name, agent_->register_memory(data, bytes, rights));
}

Result<MemoryRegion> Endpoint::allocate(std::string_view name, std::size_t bytes, Rights rights) {
  return published(name, agent_->allocate(bytes, rights));
}

Result<MemoryRegion> Endpoint::published(std::string_view name, Result<MemoryRegion> region) {
  if (region) SLIME_TRY(agent_->publish(name, *region));
  return region;
}

}  // namespace slime
