// Describes an agent as JSON, for people and tools.

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "agent/agent_impl.h"
#include "base/str.h"
#include "ctrl/client/token_file.h"
#include "ctrl/wire/wire.h"

namespace slime {
namespace {

using Json = nlohmann::ordered_json;

struct PortView {
  std::size_t endpoints = 0;
  std::uint32_t free_slots = 0;
  transport::PortCounters counters;
};

std::string to_text(const Json& json) {
  // peers choose their names, so bytes may be invalid UTF-8
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
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
          {"one_way_failed", c.one_way_failed},
          {"receives_given_back", c.receives_given_back},
          {"rendezvous", c.rendezvous},
          {"pulled_bytes", c.pulled_bytes},
          {"copied_bytes", c.copied_bytes},
          {"over_budget", c.over_budget},
          {"answers_revoked", c.answers_revoked},
          {"held_bytes", c.held_bytes},
          {"calls_in_flight", c.calls_in_flight},
          {"queued_frames", c.queued_frames},
          {"lent_buffers", c.lent_buffers}};
}

Json endpoint_json(const transport::EndpointCounters& counters) {
  Json out;
  for (const transport::EndpointCounter& counter : transport::kEndpointCounters)
    out[counter.name] = counters.*counter.value;
  return out;
}

// Adds up the counters of the agent's ports.
void add(transport::PortCounters& to, const transport::PortCounters& one) {
  to.completions += one.completions;
  to.stale_completions += one.stale_completions;
  to.receives_posted += one.receives_posted;
  to.wakeups += one.wakeups;
  to.refused_endpoints += one.refused_endpoints;
  for (const transport::EndpointCounter& counter : transport::kEndpointCounters)
    to.endpoints.*counter.value += one.endpoints.*counter.value;
}

Json port_json(const PortView& port) {
  Json out = {{"endpoints", port.endpoints},
              {"free_slots", port.free_slots},
              {"port_completions", port.counters.completions},
              {"stale_completions", port.counters.stale_completions},
              {"receives_posted", port.counters.receives_posted},
              {"wakeups", port.counters.wakeups},
              {"refused_endpoints", port.counters.refused_endpoints}};
  out.update(endpoint_json(port.counters.endpoints));
  return out;
}

Json device_json(const std::vector<transport::DeviceCounter>& counters) {
  Json out = Json::object();
  for (const transport::DeviceCounter& counter : counters) out[counter.name] = counter.value;
  return out;
}

Json operation_json(const agent::OperationView& operation) {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  return {{"what", operation.what},
          {"peer", operation.peer},
          {"stage", operation.stage},
          {"age_ms", duration_cast<milliseconds>(operation.age).count()},
          {"deadline_ms", duration_cast<milliseconds>(operation.left).count()}};
}

Json peer_json(const agent::PeerView& peer) {
  Json out = {{"name", peer.name},
              {"address", peer.address},
              {"peer", peer.identity.name},
              {"instance", peer.identity.instance.is_zero() ? "" : peer.identity.instance.to_string()},
              {"provider", peer.provider},
              {"reason", peer.reason},
              {"state", agent::state_name(peer.state)},
              {"error", error_of(peer.error)},
              {"failures", peer.failures},
              {"waiting", peer.waiting},
              {"connects", peer.connects},
              {"connection", peer.connection}};
  if (peer.connection == 0) return out;
  out["opened_by_us"] = peer.initiator;
  out["endpoint"] = peer.endpoint;
  out["in_flight"] = peer.in_flight;
  out["credits"] = peer.credits;
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
          {"newest_key", view.newest_key},
          {"heartbeats", view.heartbeats},
          {"registrations", view.registrations}};
}

}  // namespace

// State that only the loop knows.
struct PeerAgentImpl::LoopView {
  std::vector<agent::PeerView> peers;
  agent::BoardCounters board;
  agent::OperationsView operations;
  PortView port;
  std::uint64_t strangers_evicted = 0;
};

PeerAgentImpl::LoopView PeerAgentImpl::look() const {
  PortView all;
  for (const auto& port : ports_) {
    if (!port) continue;
    all.endpoints += port->endpoints();
    all.free_slots += port->free_slots();
    add(all.counters, port->counters());
  }
  return {switchboard_->view(), switchboard_->counters(), switchboard_->operations(), all,
          listener_ ? listener_->strangers_evicted() : 0};
}

// Returns nothing if the loop does not answer within `bound`.
std::optional<PeerAgentImpl::LoopView> PeerAgentImpl::look(Nanos bound) {
  if (bound == Nanos::max()) return loop_->run([this] { return look(); });
  struct Answer {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<LoopView> view;
  };
  const auto answer = std::make_shared<Answer>();
  loop_->dispatch([answer, weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    LoopView view = self->look();
    const std::lock_guard lock(answer->mutex);
    answer->view.emplace(std::move(view));
    answer->changed.notify_all();
  });
  std::unique_lock lock(answer->mutex);
  answer->changed.wait_for(lock, bound, [&] { return answer->view.has_value(); });
  return std::exchange(answer->view, std::nullopt);
}

// Returns the last report that the loop made, and asks the loop for the next. A heartbeat neither
// waits for a callback that blocks the loop, nor drives the loop, which would run callbacks on the
// registrar's thread.
std::optional<ctrl::Report> PeerAgentImpl::report() {
  if (reports_.ask()) {
    loop_->post([weak = weak_from_this(), server = server_] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      const LoopView view = self->look();
      self->reports_.put(agent::make_report(view.peers, {.board = view.board,
                                                         .strangers_evicted = view.strangers_evicted,
                                                         .endpoints = view.port.counters.endpoints,
                                                         .server = server->counters()}));
    });
  }
  return reports_.newest();
}

std::string PeerAgentImpl::info(Nanos bound) {
  Json out = {{"name", options_.name},         {"scope", options_.scope},
              {"address", address_},           {"instance", instance_.to_string()},
              {"kind", options_.kind},         {"provider", options_.provider},
              {"reason", devices_->describe()}};
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  out["outage_tolerated_ms"] = duration_cast<milliseconds>(options_.outage_tolerated).count();
  out["memory_bytes"] = options_.memory_bytes;
  out["max_payload_bytes"] = options_.max_payload_bytes;
  const agent::Admission::Pass pass(admission_);
  out["state"] = forked() ? "forked" : pass ? "open" : "closed";
  if (registrar_ && !forked()) out["registry"] = registry_json(registrar_->view());
  if (!pass) return to_text(out);
  const rpc::ServerCounters server = server_->counters();
  out["server"] = {{"requests", server.requests},
                   {"refused", server.refused},
                   {"expired", server.expired},
                   {"queued", server.queued},
                   {"running", server.running}};
  out["device"] = Json::object();
  for (std::size_t i = 0; i < devices_->size(); ++i) {
    if (devices_->device(i) != nullptr) out["device"].update(device_json(devices_->device(i)->counters()));
  }
  const std::optional<LoopView> view = look(bound);
  if (!view) {
    out["loop"] = "does not answer: a callback or an inline handler keeps it, or nobody drives it";
    return to_text(out);
  }
  out["connections"] = view->board.connections;
  out["connections_made"] = view->board.made;
  out["strangers_evicted"] = view->strangers_evicted;
  out["receives_given_back"] = view->board.receives_given_back;
  out["over_budget"] = view->board.over_budget;
  out["answers_revoked"] = view->board.answers_revoked;
  out["regions_published"] = memory_->regions().published();
  out["port"] = port_json(view->port);
  out["operations_in_flight"] = view->operations.count;
  out["peers"] = Json::array();
  for (const agent::PeerView& peer : view->peers) out["peers"].push_back(peer_json(peer));
  out["operations"] = Json::array();
  for (const agent::OperationView& operation : view->operations.oldest)
    out["operations"].push_back(operation_json(operation));
  return to_text(out);
}

std::string PeerAgentImpl::peer_info(const std::string& peer) {
  agent::PeerView view;
  view.name = peer;
  const agent::Admission::Pass pass(admission_);
  if (pass) {
    loop_->run([&] { view = switchboard_->view(peer); });
  } else {
    view.error = admission_.refusal();
  }
  return to_text(peer_json(view));
}

Result<std::string> PeerAgentImpl::list_peers(Nanos timeout) {
  SLIME_TRY(check_may_wait());
  SLIME_TRY(admission_.refusal());
  if (options_.ctrl_url.empty())
    return Status(Code::kInvalidArgument,
                  "this agent has no registry: set ctrl_url to list the peers of one");
  auto client_options = ctrl::client_options(options_.ctrl_url, options_.ctrl_token, options_.ctrl_ca_file);
  if (!client_options) return std::move(client_options).error();
  client_options->connect_timeout = client_options->timeout = timeout;
  auto client = ctrl::Client::create(std::move(*client_options));
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
