// Fills AgentInfo, PeerInfo and the report to nanoctrl from the parts of an agent.

#include "agent/info.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/agent_impl.h"
#include "base/mutex.h"
#include "base/str.h"
#include "ctrl/client/token_file.h"

namespace slime {
namespace {

struct PortView {
  std::size_t endpoints = 0;
  std::uint32_t free_slots = 0;
  transport::PortCounters counters;
};

void add_endpoint(Counters& out, const transport::EndpointCounters& counters) {
  for (const transport::EndpointCounter& counter : transport::kEndpointCounters)
    out.push_back({counter.name, counters.*counter.value});
}

Counters counters_of(const rpc::ChannelCounters& c, const transport::EndpointCounters& endpoint) {
  Counters out = {{"calls", c.calls},
                  {"calls_failed", c.calls_failed},
                  {"requests", c.requests},
                  {"stale_replies", c.stale_replies},
                  {"one_way_failed", c.one_way_failed},
                  {"receives_given_back", c.receives_given_back},
                  {"rendezvous", c.rendezvous},
                  {"pulled_bytes", c.pulled_bytes},
                  {"copied_bytes", c.copied_bytes},
                  {"registrations", c.registrations},
                  {"blocks_made", c.blocks_made},
                  {"block_bytes", c.block_bytes},
                  {"over_budget", c.over_budget},
                  {"answers_revoked", c.answers_revoked},
                  {"held_bytes", c.held_bytes},
                  {"calls_in_flight", c.calls_in_flight},
                  {"queued_frames", c.queued_frames},
                  {"lent_buffers", c.lent_buffers}};
  add_endpoint(out, endpoint);
  return out;
}

Counters counters_of(const PortView& port) {
  Counters out = {{"endpoints", port.endpoints},
                  {"free_slots", port.free_slots},
                  {"port_completions", port.counters.completions},
                  {"stale_completions", port.counters.stale_completions},
                  {"receives_posted", port.counters.receives_posted},
                  {"wakeups", port.counters.wakeups},
                  {"refused_endpoints", port.counters.refused_endpoints}};
  add_endpoint(out, port.counters.endpoints);
  return out;
}

PeerInfo info_of(const agent::PeerView& peer) {
  PeerInfo out{.name = peer.name,
               .address = peer.address,
               .peer = peer.identity.name,
               .instance = peer.identity.instance,
               .provider = peer.provider,
               .reason = peer.reason,
               .state = std::string(agent::state_name(peer.state)),
               .error = peer.error,
               .failures = peer.failures,
               .waiting = peer.waiting,
               .connects = peer.connects,
               .connection = peer.connection};
  if (peer.connection == 0) return out;
  out.opened_by_us = peer.initiator;
  out.endpoint = peer.endpoint;
  out.in_flight = peer.in_flight;
  out.credits = peer.credits;
  out.counters = counters_of(peer.channel, peer.bytes);
  return out;
}

RegistryInfo info_of(const agent::RegistryView& view) {
  return {.url = view.url,
          .state = std::string(agent::registry_state_name(view.state)),
          .error = view.last_error,
          .incarnation = view.incarnation,
          .server_epoch = view.server_epoch,
          .revision = view.revision,
          .ttl = view.ttl,
          .newest_key = view.newest_key,
          .heartbeats = view.heartbeats,
          .registrations = view.registrations};
}

RegisteredPeer info_of(const ctrl::PeerInfo& peer) {
  RegisteredPeer out{.name = peer.name,
                     .scope = peer.scope,
                     .instance = peer.instance,
                     .address = peer.address,
                     .kind = peer.kind,
                     .providers = peer.providers,
                     .metadata = peer.metadata,
                     .services = {},
                     .regions = {},
                     .incarnation = peer.incarnation,
                     .revision = peer.revision,
                     .expires_in = peer.expires_in};
  for (const ctrl::ServiceInfo& service : peer.services)
    out.services.push_back({service.name, service.kind, service.methods,
                            std::string(ctrl::health_name(service.health)), service.labels});
  for (const ctrl::RegionInfo& region : peer.regions)
    out.regions.push_back({region.name, region.length_bytes, static_cast<Rights>(region.rights)});
  return out;
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
    all.counters += port->counters();
  }
  return {switchboard_->view(), switchboard_->counters(), switchboard_->operations(), all,
          listener_ ? listener_->strangers_evicted() : 0};
}

// Returns the loop's state; nullopt if the loop does not answer within `bound`.
std::optional<PeerAgentImpl::LoopView> PeerAgentImpl::look(Nanos bound) {
  if (bound == Nanos::max()) return loop_->run([this] { return look(); });
  struct Answer {
    Mutex mutex;
    CondVar changed;
    std::optional<LoopView> view SLIME_GUARDED_BY(mutex);
  };
  const auto answer = std::make_shared<Answer>();
  loop_->dispatch([answer, weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    LoopView view = self->look();
    const MutexLock lock(answer->mutex);
    answer->view.emplace(std::move(view));
    answer->changed.notify_all();
  });
  const MutexLock lock(answer->mutex);
  answer->changed.wait_for(answer->mutex, bound,
                           [&]() SLIME_REQUIRES(answer->mutex) { return answer->view.has_value(); });
  return std::exchange(answer->view, std::nullopt);
}

// Returns the last report that the loop made, and asks the loop for the next one. So a heartbeat
// does not wait for a callback that blocks the loop, and does not drive the loop, which would run
// callbacks on the registrar's thread.
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

AgentInfo PeerAgentImpl::info(Nanos bound) {
  AgentInfo out;
  out.name = options_.name;
  out.scope = options_.scope;
  out.address = address_;
  out.instance = instance_;
  out.kind = options_.kind;
  out.provider = options_.provider;
  out.reason = devices_->describe();
  out.outage_tolerated = options_.outage_tolerated;
  out.memory_bytes = options_.memory_bytes;
  out.max_payload_bytes = options_.max_payload_bytes;
  const agent::Admission::Pass pass(*admission_);
  out.state = forked() ? "forked" : pass ? "open" : "closed";
  if (registrar_ && !forked()) out.registry = info_of(registrar_->view());
  if (!pass) return out;
  out.server = server_->counters();
  for (std::size_t i = 0; i < devices_->size(); ++i) {
    if (devices_->device(i) == nullptr) continue;
    for (const transport::DeviceCounter& counter : devices_->device(i)->counters())
      out.device.push_back({counter.name, counter.value});
  }
  const std::optional<LoopView> view = look(bound);
  if (view) {
    add_view(out, *view);
  } else {
    out.loop = "does not answer: a callback or an inline handler keeps it, or nobody drives it";
  }
  return out;
}

void PeerAgentImpl::add_view(AgentInfo& out, const LoopView& view) const {
  out.connections = view.board.connections;
  out.connections_made = view.board.made;
  out.strangers_evicted = view.strangers_evicted;
  out.receives_given_back = view.board.receives_given_back;
  out.over_budget = view.board.over_budget;
  out.answers_revoked = view.board.answers_revoked;
  out.regions_published = memory_->regions().published();
  out.port = counters_of(view.port);
  out.operations_in_flight = view.operations.count;
  for (const agent::PeerView& peer : view.peers) out.peers.push_back(info_of(peer));
  for (const agent::OperationView& each : view.operations.oldest)
    out.operations.push_back({each.what, each.peer, std::string(each.stage), each.age, each.left});
}

PeerInfo PeerAgentImpl::peer_info(agent::NamedPeer& peer) {
  agent::PeerView view;
  view.name = peer.name;
  const agent::Admission::Pass pass(*admission_);
  if (pass) {
    loop_->run([&] { view = switchboard_->view(peer); });
  } else {
    view.error = admission_->refusal();
  }
  return info_of(view);
}

Result<std::vector<RegisteredPeer>> PeerAgentImpl::list_peers(Nanos timeout) {
  SLIME_TRY(check_may_wait());
  SLIME_TRY(admission_->refusal());
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
  std::vector<RegisteredPeer> out;
  for (const ctrl::PeerInfo& peer : list->peers) out.push_back(info_of(peer));
  return out;
}

}  // namespace slime
