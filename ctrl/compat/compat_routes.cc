#include "ctrl/compat/compat_routes.h"

#include <functional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/str.h"
#include "ctrl/api/page.h"
#include "ctrl/http/replies.h"
#include "ctrl/limits.h"

namespace slime::ctrl {
namespace {

using compat::Entity;
using compat::EntityRef;

ApiReply native_peer(const EntityRef& of) {
  return reply_error(
      409, Code::kAlreadyExists,
      str("'", of.id, "' in scope '", of.scope, "' is a slime agent, which did not register here"),
      "use another name");
}

ApiReply not_registered(const EntityRef& of) {
  return reply_error(404, Code::kNotFound,
                     str("agent '", of.id, "' is not registered in scope '", of.scope, "'"),
                     "start_peer_agent registers it");
}

std::string random_name(const std::string& prefix) {
  std::array<std::byte, 4> bytes{};
  random_bytes(bytes);
  return str(prefix, "-", to_hex(bytes));
}

bool gone(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kAborted;
}

Status permit(const Call& call, Role needed, const std::string& scope) {
  call.query.permit(needed, scope);
  return call.query.finish();
}
// Returns a proof by token, because clients of NanoCtrl have no sessions: a request may change a
// record that was registered with the same token.
Proof token_proof(const Call& call) { return {Proof::Kind::kToken, {{}, call.query.principal().token_id}}; }
// Like token_proof(), but an administrator gets a proof that is always accepted. On a server that
// requires no tokens, every client gets this proof, but only with `without_tokens`.
Proof token_proof_or_admin(const Call& call, bool without_tokens) {
  const Principal& principal = call.query.principal();
  const bool admin = principal.role == Role::kAdmin && (without_tokens || !principal.token_id.empty());
  Proof out = token_proof(call);
  if (admin) out.kind = Proof::Kind::kTrusted;
  return out;
}

Status may_change(const Call& call, const PeerInfo& held) {
  return check_proof(token_proof(call), held.name, held.owner);
}

}  // namespace

std::optional<PeerInfo> CompatRoutes::find(const Call& call, const std::string& scope,
                                           const std::string& id) {
  call.query.about(id);
  const std::optional<PeerView> peer =
      context_.engine().read([&](const Registry& registry) { return registry.view(scope, id); });
  if (!peer) return std::nullopt;
  PeerInfo out = *peer->info;
  out.expires_in = peer->expires_in;
  return out;
}

Mutex& CompatRoutes::mutex_of(const std::string& scope, const std::string& id) {
  const std::size_t hash = std::hash<std::string>{}(str(scope, "\n", id));
  return mutexes_[hash % mutexes_.size()];
}

template <class Done>
ApiReply CompatRoutes::put(const Call& call, const Entity& entity, const InstanceId& instance,
                           const Done& done) {
  Result<Registration> registration = compat::to_registration(entity, instance);
  if (!registration) {
    if (registration.error().code() != Code::kResourceExhausted) return reply_error(registration.error());
    return reply_error(413, Code::kInvalidArgument, std::string(registration.error().text()), "");
  }
  Outcome out = context_.submit(RegisterCommand{std::move(*registration), 0, token_proof(call)});
  if (!out.status.ok()) return reply_error(std::move(out.status), "");
  return reply_ok(done());
}

template <class Change>
ApiReply CompatRoutes::update(const Call& call, const EntityRef& of, const Change& change) {
  if (Status status = permit(call, Role::kJoin, of.scope); !status.ok())
    return reply_error(std::move(status));
  const MutexLock lock(mutex_of(of.scope, of.id));
  const std::optional<PeerInfo> held = find(call, of.scope, of.id);
  if (!held) return not_registered(of);
  Entity entity = compat::to_entity(*held);
  if (entity.native) return native_peer(of);
  if (entity.type != of.type) return not_registered(of);
  if (Status status = may_change(call, *held); !status.ok()) return reply_error(std::move(status));
  change(entity);
  return put(call, entity, held->instance, [] { return compat::encode_status("ok", "recorded"); });
}

template <class EncodeOne, class EncodeAll>
ApiReply CompatRoutes::list(const Call& call, const EncodeOne& encode_one, const EncodeAll& encode_all,
                            std::string_view type) {
  Result<compat::EntityFilter> filter = compat::decode_filter(call.request.body);
  if (!filter) return reply_error(filter.error());
  if (Status status = permit(call, Role::kRead, filter->scope); !status.ok())
    return reply_error(std::move(status));
  const bool agents = !type.empty();
  if (agents) *filter = {filter->scope, std::string(type), {}};
  std::vector<std::string> items;
  std::size_t bytes = 0;
  // Visits the scope's peers in slices, with the lock free in between. The list may or may not
  // contain a peer that registers or leaves meanwhile.
  context_.scans().visit(filter->scope, {}, kAllRecords, [&](const PeerView& peer) {
    if (!filter->kind.empty() && peer.info->kind != filter->kind) return true;
    const Entity entity = compat::to_entity(*peer.info);
    if (!filter->type.empty() && entity.type != filter->type) return true;
    items.push_back(encode_one(entity));
    bytes += items.back().size();
    return bytes <= limits::kCompatListBytes;
  });
  if (bytes > limits::kCompatListBytes)
    return reply_error(413, Code::kInvalidArgument,
                       str("the list has more than ", limits::kCompatListBytes, " bytes"),
                       agents ? "use GET /v1/peers, which has pages"
                              : "ask for one kind, or use GET /v1/peers, which has pages");
  return reply_ok(encode_all(items));
}

ApiReply CompatRoutes::root(const Call& call) {
  if (prefers_html(call.request.accept)) return redirect_to_page();
  call.query.permit_all();
  if (Status status = call.query.finish(); !status.ok()) return reply_error(std::move(status));
  ApiReply reply = reply_ok("nanoctrl is running\n");
  reply.content_type = "text/plain";
  return reply;
}

ApiReply CompatRoutes::start_agent(const Call& call) {
  Result<compat::AgentRequest> request = compat::decode_agent(call.request.body);
  if (!request) return reply_error(request.error());
  Entity& agent = request->agent;
  if (Status status = permit(call, Role::kJoin, agent.scope); !status.ok())
    return reply_error(std::move(status));
  if (!agent.id.empty()) return start(call, agent);
  // Attempts to register under a random name; each attempt with another name, if the name is in
  // use.
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    agent.id = random_name(request->name_prefix);
    ApiReply reply = start(call, agent);
    if (reply.status != 409 || attempt == kAttempts) return reply;
  }
}

ApiReply CompatRoutes::register_entity(const Call& call) {
  Result<Entity> request = compat::decode_entity(call.request.body);
  if (!request) return reply_error(request.error());
  Entity& entity = *request;
  if (Status status = permit(call, Role::kJoin, entity.scope); !status.ok())
    return reply_error(std::move(status));
  const MutexLock lock(mutex_of(entity.scope, entity.id));
  const std::optional<PeerInfo> held = find(call, entity.scope, entity.id);
  InstanceId instance = compat::new_instance();
  if (held) {
    Entity current = compat::to_entity(*held);
    if (current.native) return native_peer({entity.scope, entity.type, entity.id});
    if (Status status = may_change(call, *held); !status.ok()) return reply_error(std::move(status));
    if (current.type != entity.type)
      return reply_error(
          409, Code::kAlreadyExists,
          str("'", entity.id, "' in scope '", entity.scope, "' is of entity_type '", current.type, "'"),
          "use another entity_id: here it is unique in its scope");
    // Keeps the fields of the old record that this request cannot contain, such as the regions of
    // an agent.
    current.kind = std::move(entity.kind);
    current.endpoint = std::move(entity.endpoint);
    current.metadata = std::move(entity.metadata);
    current.resource = std::move(entity.resource);
    entity = std::move(current);
    instance = held->instance;
  }
  return put(call, entity, instance, [&] {
    return compat::encode_status("ok", str(entity.type, " '", entity.id, "' is registered"));
  });
}

ApiReply CompatRoutes::cleanup(const Call& call) {
  return remove(call, compat::decode_agent_ref(call.request.body));
}
ApiReply CompatRoutes::unregister(const Call& call) {
  return remove(call, compat::decode_entity_ref(call.request.body));
}
ApiReply CompatRoutes::remove(const Call& call, Result<EntityRef> ref) {
  if (!ref) return reply_error(ref.error());
  if (Status status = permit(call, Role::kJoin, ref->scope); !status.ok())
    return reply_error(std::move(status));
  const MutexLock lock(mutex_of(ref->scope, ref->id));
  const std::optional<PeerInfo> held = find(call, ref->scope, ref->id);
  const std::string done = compat::encode_status("ok", str(ref->type, " '", ref->id, "' is not registered"));
  // Removing an entity that is not registered is a success.
  if (!held) return reply_ok(done);
  const Entity entity = compat::to_entity(*held);
  if (entity.native) return native_peer(*ref);
  if (entity.type != ref->type) return reply_ok(done);
  Outcome out = context_.submit(
      DeregisterCommand{ref->scope, ref->id, held->incarnation, token_proof_or_admin(call, false)});
  if (gone(out.status) || out.status.ok())
    return reply_ok(compat::encode_status("ok", str(ref->type, " '", ref->id, "' was removed")));
  return reply_error(std::move(out.status));
}

ApiReply CompatRoutes::heartbeat(const Call& call) {
  const Result<EntityRef> ref = compat::decode_entity_ref(call.request.body);
  if (!ref) return reply_error(ref.error());
  if (Status status = permit(call, Role::kJoin, ref->scope); !status.ok())
    return reply_error(std::move(status));
  const std::optional<PeerInfo> held = find(call, ref->scope, ref->id);
  const std::string not_found = compat::encode_status(
      "not_found", str(ref->type, " '", ref->id, "' is not registered in scope '", ref->scope, "'"));
  if (!held) return reply_ok(not_found);
  // If a Slime agent, or an entity of another type, has the name now, answers "not_found": the
  // client has lost the name, and cannot renew the lease of another owner.
  const Entity entity = compat::to_entity(*held);
  if (entity.native || entity.type != ref->type) return reply_ok(not_found);
  Outcome out =
      context_.engine().submit(HeartbeatCommand{ref->scope, ref->id, held->incarnation, token_proof(call)});
  if (gone(out.status)) return reply_ok(not_found);
  if (!out.status.ok()) return reply_error(std::move(out.status));
  return reply_ok(compat::encode_status("ok", str(ref->type, " '", ref->id, "' lives for another 60 s")));
}

ApiReply CompatRoutes::get_entity(const Call& call) {
  const Result<EntityRef> ref = compat::decode_entity_ref(call.request.body);
  if (!ref) return reply_error(ref.error());
  if (Status status = permit(call, Role::kRead, ref->scope); !status.ok())
    return reply_error(std::move(status));
  std::optional<Entity> found;
  if (const std::optional<PeerInfo> held = find(call, ref->scope, ref->id)) found = compat::to_entity(*held);
  if (found && found->type != ref->type) found.reset();
  return reply_ok(compat::encode_entity_info(found));
}

ApiReply CompatRoutes::list_entities(const Call& call) {
  return list(call, compat::encode_entity, compat::encode_entities, {});
}
ApiReply CompatRoutes::list_agents(const Call& call) {
  return list(call, compat::encode_agent, compat::encode_agents, compat::kAgentType);
}

ApiReply CompatRoutes::register_region(const Call& call) {
  Result<compat::RegionRequest> request = compat::decode_region(call.request.body);
  if (!request) return reply_error(request.error());
  return update(call, request->agent, [&](Entity& agent) { agent.regions[request->name] = request->region; });
}

ApiReply CompatRoutes::get_region(const Call& call) {
  const Result<compat::RegionQuery> request = compat::decode_region_query(call.request.body);
  if (!request) return reply_error(request.error());
  const EntityRef& of = request->agent;
  if (Status status = permit(call, Role::kRead, of.scope); !status.ok())
    return reply_error(std::move(status));
  std::optional<compat::EntityRegion> out;
  if (const std::optional<PeerInfo> held = find(call, of.scope, of.id)) {
    const Entity agent = compat::to_entity(*held);
    // Does not return a region of a Slime agent: the registry does not have its keys, which only
    // the agent gives out.
    const auto it = agent.regions.find(request->name);
    if (!agent.native && it != agent.regions.end()) out = it->second;
  }
  return reply_ok(compat::encode_region(out));
}

ApiReply CompatRoutes::set_desired_topology(const Call& call) {
  // These clients do not escape '/' in names.
  std::string agent_id = call.path[2];
  for (std::size_t i = 3; i < call.path.size(); ++i) agent_id += str("/", call.path[i]);
  Result<compat::TopologyRequest> request = compat::decode_topology(call.request.body);
  if (!request) return reply_error(request.error());
  if (Status status = check_name("agent_id", agent_id); !status.ok()) return reply_error(std::move(status));
  if (Status status = permit(call, Role::kJoin, request->scope); !status.ok())
    return reply_error(std::move(status));
  Outcome out = context_.submit(SetLinksCommand{request->scope, agent_id, std::move(request->target_peers),
                                                token_proof_or_admin(call, true)});
  if (!out.status.ok()) return reply_error(std::move(out.status));
  return reply_ok(compat::encode_status("ok", str("the links of '", agent_id, "' are wanted")));
}

ApiReply CompatRoutes::redis_address(const Call& call) {
  call.query.permit_all();
  if (Status status = call.query.finish(); !status.ok()) return reply_error(std::move(status));
  if (Status status = compat::decode_empty(call.request.body); !status.ok())
    return reply_error(std::move(status));
  return reply_ok(compat::encode_no_redis());
}

ApiReply CompatRoutes::start(const Call& call, const Entity& agent) {
  const MutexLock lock(mutex_of(agent.scope, agent.id));
  const std::optional<PeerInfo> held = find(call, agent.scope, agent.id);
  if (held && !compat::registered_here(held->instance))
    return native_peer({agent.scope, agent.type, agent.id});
  if (held) {
    ApiReply reply =
        reply_error(409, Code::kAlreadyExists, str("'", agent.id, "' in scope '", agent.scope, "' is alive"),
                    "use another alias, clean it up, or wait until its 60 s are over");
    reply.retry_after = held->expires_in;
    return reply;
  }
  return put(call, agent, compat::new_instance(), [&] { return compat::encode_started(agent); });
}

}  // namespace slime::ctrl
