// What an agent tells of itself as JSON, for people and tools.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "agent/agent_impl.h"
#include "base/str.h"
#include "ctrl/wire.h"

namespace slime {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);  // names are a peer's bytes
}

Json error_of(const Status& status) {
  if (status.ok()) return nullptr;
  return {{"code", code_name(status.code())}, {"text", status.text()}};
}

Json channel_json(const rpc::ChannelCounters& c) {
  return {{"calls", c.calls},
          {"calls_failed", c.calls_failed},
          {"requests", c.requests},
          {"stale_replies", c.stale_replies},
          {"rendezvous", c.rendezvous},
          {"calls_in_flight", c.calls_in_flight},
          {"queued_frames", c.queued_frames},
          {"lent_buffers", c.lent_buffers}};
}

Json endpoint_json(const transport::EndpointCounters& c) {
  return {{"messages_sent", c.messages_sent},
          {"messages_received", c.messages_received},
          {"bytes_sent", c.bytes_sent},
          {"bytes_received", c.bytes_received},
          {"reads", c.reads},
          {"writes", c.writes},
          {"atomics", c.atomics},
          {"notifications_received", c.notifications_received},
          {"credit_stalls", c.credit_stalls},
          {"failed_operations", c.failed_operations}};
}

Json peer_json(const agent::PeerView& peer, std::string_view provider, std::string_view reason) {
  Json out = {{"name", peer.name},
              {"address", peer.address},
              {"peer", peer.identity.name},
              {"instance", peer.identity.instance.is_zero() ? "" : peer.identity.instance.to_string()},
              {"provider", provider},
              {"reason", reason},
              {"state", agent::state_name(peer.state)},
              {"error", error_of(peer.error)},
              {"failures", peer.failures},
              {"waiting", peer.waiting},
              {"connects", peer.connects},
              {"connection", peer.connection}};
  if (peer.connection == 0) return out;
  out["opened_by_us"] = peer.initiator;
  out["endpoint"] = peer.endpoint;
  Json counters = channel_json(peer.channel);
  counters.update(endpoint_json(peer.bytes));
  out["counters"] = std::move(counters);
  return out;
}

Json registry_json(const agent::RegistryView& view) {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  return {{"url", view.url},
          {"state", agent::registry_state_name(view.state)},
          {"error", error_of(view.last_error)},
          {"incarnation", view.incarnation},
          {"server_epoch", view.server_epoch},
          {"revision", view.revision},
          {"ttl_ms", duration_cast<milliseconds>(view.ttl).count()},
          {"heartbeats", view.heartbeats},
          {"registrations", view.registrations}};
}

}  // namespace

std::string PeerAgentImpl::info() {
  Json out = {{"name", options_.name},     {"scope", options_.scope},
              {"address", address_},       {"instance", instance_.to_string()},
              {"kind", options_.kind},     {"provider", fabric_->provider->name()},
              {"reason", provider_reason_}};
  const agent::Gate::Pass pass(gate_);
  out["state"] = forked() ? "forked" : pass ? "open" : "closed";
  if (registrar_ && !forked()) out["registry"] = registry_json(registrar_->view());
  if (!pass || forked()) return text_of(out);
  std::vector<agent::PeerView> peers;
  agent::BoardCounters board;
  loop_->run([&] {
    peers = switchboard_->view();
    board = switchboard_->counters();
  });
  out["connections"] = board.connections;
  out["connections_made"] = board.made;
  out["regions_published"] = regions_.published();
  const rpc::ServerCounters server = server_->counters();
  out["server"] = {{"requests", server.requests},
                   {"refused", server.refused},
                   {"expired", server.expired},
                   {"queued", server.queued},
                   {"running", server.running}};
  out["peers"] = Json::array();
  for (const agent::PeerView& peer : peers)
    out["peers"].push_back(peer_json(peer, fabric_->provider->name(), provider_reason_));
  return text_of(out);
}

std::string PeerAgentImpl::peer_info(const std::string& peer) {
  agent::PeerView view;
  view.name = peer;
  const agent::Gate::Pass pass(gate_);
  if (pass && !forked()) {
    loop_->run([&] { view = switchboard_->view(peer); });
  } else {
    view.error = refusal();
  }
  return text_of(peer_json(view, fabric_->provider->name(), provider_reason_));
}

Result<std::string> PeerAgentImpl::list_peers(Nanos timeout) {
  SLIME_TRY(check_may_wait());
  if (forked() || gate_.closed()) return refusal();
  if (options_.ctrl_url.empty())
    return Status(Code::kInvalidArgument,
                  "this agent has no registry: set ctrl_url to list the peers of one");
  ctrl::ClientOptions client_options;
  client_options.url = options_.ctrl_url;
  client_options.connect_timeout = client_options.timeout = timeout;
  auto client = ctrl::Client::create(std::move(client_options));
  if (!client) return std::move(client).error();
  ctrl::PeerFilter filter;
  filter.scope = options_.scope;
  const auto list = (*client)->list_peers(filter);
  if (!list) return list.error();
  std::string out = "[";
  for (const ctrl::PeerInfo& peer : list->peers) {
    if (out.size() > 1) out += ',';
    out += ctrl::wire::encode(peer);
  }
  return out + "]";
}

}  // namespace slime
