#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "agent/info.h"

namespace slime {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of_json(const Json& json) {
  // Replaces invalid UTF-8: peers choose their names, so any bytes may occur.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::int64_t millis(Nanos span) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
}

std::string instance_text(const InstanceId& instance) {
  return instance.is_zero() ? "" : instance.to_string();
}

Json error_json(const Status& status) {
  if (status.ok()) return nullptr;
  return {{"code", code_name(status.code())}, {"text", status.text()}};
}

Json counters_json(const Counters& counters) {
  Json out = Json::object();
  for (const Counter& counter : counters) out[counter.name] = counter.value;
  return out;
}

Json operation_json(const OperationInfo& operation) {
  return {{"what", operation.what},
          {"peer", operation.peer},
          {"stage", operation.stage},
          {"age_ms", millis(operation.age)},
          {"deadline_ms", millis(operation.left)}};
}

Json peer_json(const PeerInfo& peer) {
  Json out = {{"name", peer.name},         {"address", peer.address},
              {"peer", peer.peer},         {"instance", instance_text(peer.instance)},
              {"provider", peer.provider}, {"reason", peer.reason},
              {"state", peer.state},       {"error", error_json(peer.error)},
              {"failures", peer.failures}, {"waiting", peer.waiting},
              {"connects", peer.connects}, {"connection", peer.connection}};
  if (peer.connection == 0) return out;
  out["opened_by_us"] = peer.opened_by_us;
  out["endpoint"] = peer.endpoint;
  out["in_flight"] = peer.in_flight;
  out["credits"] = peer.credits;
  out["counters"] = counters_json(peer.counters);
  return out;
}

Json registry_json(const RegistryInfo& registry) {
  return {{"url", registry.url},
          {"state", registry.state},
          {"error", error_json(registry.error)},
          {"incarnation", registry.incarnation},
          {"server_epoch", registry.server_epoch},
          {"revision", registry.revision},
          {"ttl_ms", millis(registry.ttl)},
          {"newest_key", registry.newest_key},
          {"heartbeats", registry.heartbeats},
          {"registrations", registry.registrations}};
}

std::string_view rights_text(transport::Rights rights) {
  switch (rights) {
    case transport::Rights::kLocal:
      return "local";
    case transport::Rights::kRemoteRead:
      return "read";
    case transport::Rights::kRemoteWrite:
      return "write";
    case transport::Rights::kReadWrite:
      break;
  }
  return "read_write";
}

Json registered_json(const RegisteredPeer& peer) {
  Json out = {{"name", peer.name},
              {"scope", peer.scope},
              {"instance", instance_text(peer.instance)},
              {"address", peer.address},
              {"kind", peer.kind},
              {"providers", peer.providers},
              {"metadata", peer.metadata},
              {"services", Json::array()},
              {"regions", Json::array()},
              {"incarnation", peer.incarnation},
              {"revision", peer.revision},
              {"expires_in_ms", millis(peer.expires_in)}};
  for (const RegisteredPeer::Service& service : peer.services)
    out["services"].push_back({{"name", service.name},
                               {"kind", service.kind},
                               {"methods", service.methods},
                               {"health", service.health},
                               {"labels", service.labels}});
  for (const RegisteredPeer::Region& region : peer.regions)
    out["regions"].push_back({{"name", region.name},
                              {"length_bytes", region.length_bytes},
                              {"rights", rights_text(region.rights)}});
  return out;
}

// Adds what an open agent's loop tells.
void add_loop(Json& out, const AgentInfo& info) {
  if (!info.loop.empty()) {
    out["loop"] = info.loop;
    return;
  }
  out["connections"] = info.connections;
  out["connections_made"] = info.connections_made;
  out["strangers_evicted"] = info.strangers_evicted;
  out["receives_given_back"] = info.receives_given_back;
  out["over_budget"] = info.over_budget;
  out["answers_revoked"] = info.answers_revoked;
  out["regions_published"] = info.regions_published;
  out["port"] = counters_json(info.port);
  out["operations_in_flight"] = info.operations_in_flight;
  out["peers"] = Json::array();
  for (const PeerInfo& peer : info.peers) out["peers"].push_back(peer_json(peer));
  out["operations"] = Json::array();
  for (const OperationInfo& operation : info.operations)
    out["operations"].push_back(operation_json(operation));
}

}  // namespace

std::uint64_t value_of(const Counters& counters, std::string_view name) {
  for (const Counter& counter : counters) {
    if (counter.name == name) return counter.value;
  }
  return 0;
}

std::string to_json(const PeerInfo& info) { return text_of_json(peer_json(info)); }

std::string to_json(const AgentInfo& info) {
  Json out = {{"name", info.name},
              {"scope", info.scope},
              {"address", info.address},
              {"instance", info.instance.to_string()},
              {"kind", info.kind},
              {"provider", info.provider},
              {"reason", info.reason},
              {"outage_tolerated_ms", millis(info.outage_tolerated)},
              {"memory_bytes", info.memory_bytes},
              {"max_payload_bytes", info.max_payload_bytes},
              {"state", info.state}};
  if (info.registry) out["registry"] = registry_json(*info.registry);
  if (info.state != "open") return text_of_json(out);
  out["server"] = {{"requests", info.server.requests},
                   {"refused", info.server.refused},
                   {"expired", info.server.expired},
                   {"queued", info.server.queued},
                   {"running", info.server.running}};
  out["device"] = counters_json(info.device);
  add_loop(out, info);
  return text_of_json(out);
}

std::string to_json(const std::vector<RegisteredPeer>& peers) {
  Json out = Json::array();
  for (const RegisteredPeer& peer : peers) out.push_back(registered_json(peer));
  return text_of_json(out);
}

std::string to_json(const ProxyInfo& info) {
  Json out = {{"service", info.service}, {"servers", Json::array()}};
  for (const ProxyInfo::Server& server : info.servers)
    out["servers"].push_back({{"name", server.name},
                              {"address", server.address},
                              {"instance", server.instance.to_string()},
                              {"calls_in_flight", server.calls_in_flight},
                              {"calls", server.calls},
                              {"ejections", server.ejections},
                              {"avoided", server.avoided.ok() ? Json() : Json(server.avoided.to_string())}});
  return text_of_json(out);
}

}  // namespace slime
