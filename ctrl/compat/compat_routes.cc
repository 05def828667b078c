#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <mutex>
#include <utility>

#include "base/random.h"
#include "ctrl/api/api_query.h"
#include "ctrl/api/page.h"
#include "ctrl/compat/entities.h"

// The routes of DLSlime's NanoCtrl over the same registry: what registers there is a peer of the same name.
namespace slime::ctrl {
namespace {

using compat::Entity;
using compat::EntityRef;

ApiReply native_peer(const EntityRef& of) {
  return Api::error(
      409, Code::kAlreadyExists,
      str("'", of.id, "' in scope '", of.scope, "' is a slime agent, which did not register here"),
      "use another name");
}

ApiReply not_registered(const EntityRef& of) {
  return Api::error(404, Code::kNotFound,
                    str("agent '", of.id, "' is not registered in scope '", of.scope, "'"),
                    "start_peer_agent registers it");
}

std::string random_name(const std::string& prefix) {
  std::array<std::byte, 4> bytes{};
  random_bytes(bytes);
  return str(prefix, "-", to_hex(bytes));
}

}  // namespace

class Api::Compat {
 public:
  Compat(Api& api, const Call& call) : api_(api), call_(call), query_(call.query), body_(call.request.body) {}

  ApiReply root() {
    if (prefers_html(call_.request.accept)) return redirect_to_page();
    query_.permit_all();
    if (Status status = query_.finish(); !status.ok()) return reply_error(std::move(status));
    ApiReply reply = reply_ok("nanoctrl is running\n");
    reply.content_type = "text/plain";
    return reply;
  }

  ApiReply start_agent() {
    Result<compat::AgentRequest> request = compat::decode_agent(body_);
    if (!request) return reply_error(request.error());
    Entity& agent = request->agent;
    if (Status status = permit(Role::kJoin, agent.scope); !status.ok()) return reply_error(std::move(status));
    if (!agent.id.empty()) return start(agent);
    // Names that nobody has are not rare: the second attempt is for the case that somebody has.
    constexpr int kAttempts = 3;
    for (int attempt = 1;; ++attempt) {
      agent.id = random_name(request->name_prefix);
      ApiReply reply = start(agent);
      if (reply.status != 409 || attempt == kAttempts) return reply;
    }
  }

  ApiReply register_entity() {
    Result<Entity> request = compat::decode_entity(body_);
    if (!request) return reply_error(request.error());
    Entity& entity = *request;
    if (Status status = permit(Role::kJoin, entity.scope); !status.ok())
      return reply_error(std::move(status));
    const std::lock_guard lock(mutex_of(entity.scope, entity.id));
    const std::optional<PeerInfo> held = find(entity.scope, entity.id);
    InstanceId instance = compat::new_instance();
    if (held) {
      Entity current = compat::to_entity(*held);
      if (current.native) return native_peer({entity.scope, entity.type, entity.id});
      if (Status status = may_change(*held); !status.ok()) return reply_error(std::move(status));
      if (current.type != entity.type)
        return Api::error(
            409, Code::kAlreadyExists,
            str("'", entity.id, "' in scope '", entity.scope, "' is of entity_type '", current.type, "'"),
            "use another entity_id: here it is unique in its scope");
      // What this request says nothing of stays: regions, say, of an agent that describes itself so, too.
      current.kind = std::move(entity.kind);
      current.endpoint = std::move(entity.endpoint);
      current.metadata = std::move(entity.metadata);
      current.resource = std::move(entity.resource);
      entity = std::move(current);
      instance = held->instance;
    }
    return put(entity, instance, [&] {
      return compat::encode_status("ok", str(entity.type, " '", entity.id, "' is registered"));
    });
  }

  ApiReply cleanup() { return unregister(compat::decode_agent_ref(body_)); }
  ApiReply unregister() { return unregister(compat::decode_entity_ref(body_)); }
  ApiReply unregister(Result<EntityRef> ref) {
    if (!ref) return reply_error(ref.error());
    if (Status status = permit(Role::kJoin, ref->scope); !status.ok()) return reply_error(std::move(status));
    const std::lock_guard lock(mutex_of(ref->scope, ref->id));
    const std::optional<PeerInfo> held = find(ref->scope, ref->id);
    const std::string done =
        compat::encode_status("ok", str(ref->type, " '", ref->id, "' is not registered"));
    // What is not there any more is what was asked for.
    if (!held) return reply_ok(done);
    const Entity entity = compat::to_entity(*held);
    if (entity.native) return native_peer(*ref);
    if (entity.type != ref->type) return reply_ok(done);
    Outcome out =
        api_.submit(DeregisterCommand{ref->scope, ref->id, held->incarnation, proof_or_admin(false)});
    if (gone(out.status) || out.status.ok())
      return reply_ok(compat::encode_status("ok", str(ref->type, " '", ref->id, "' was removed")));
    return reply_error(std::move(out.status));
  }

  ApiReply heartbeat() {
    const Result<EntityRef> ref = compat::decode_entity_ref(body_);
    if (!ref) return reply_error(ref.error());
    if (Status status = permit(Role::kJoin, ref->scope); !status.ok()) return reply_error(std::move(status));
    const std::optional<PeerInfo> held = find(ref->scope, ref->id);
    const std::string not_found = compat::encode_status(
        "not_found", str(ref->type, " '", ref->id, "' is not registered in scope '", ref->scope, "'"));
    if (!held) return reply_ok(not_found);
    // A native peer's lease is its own to renew; who had the name before learns that it is lost.
    const Entity entity = compat::to_entity(*held);
    if (entity.native || entity.type != ref->type) return reply_ok(not_found);
    Outcome out = api_.engine_->submit(HeartbeatCommand{ref->scope, ref->id, held->incarnation, proof()});
    if (gone(out.status)) return reply_ok(not_found);
    if (!out.status.ok()) return reply_error(std::move(out.status));
    return reply_ok(compat::encode_status("ok", str(ref->type, " '", ref->id, "' lives for another 60 s")));
  }

  ApiReply get_entity() {
    const Result<EntityRef> ref = compat::decode_entity_ref(body_);
    if (!ref) return reply_error(ref.error());
    if (Status status = permit(Role::kRead, ref->scope); !status.ok()) return reply_error(std::move(status));
    std::optional<Entity> found;
    if (const std::optional<PeerInfo> held = find(ref->scope, ref->id)) found = compat::to_entity(*held);
    if (found && found->type != ref->type) found.reset();
    return reply_ok(compat::encode_entity_info(found));
  }

  ApiReply list_entities() { return list(compat::encode_entity, compat::encode_entities, {}); }
  ApiReply list_agents() { return list(compat::encode_agent, compat::encode_agents, compat::kAgentType); }

  ApiReply register_region() {
    Result<compat::RegionRequest> request = compat::decode_region(body_);
    if (!request) return reply_error(request.error());
    return update(request->agent, [&](Entity& agent) { agent.regions[request->name] = request->region; });
  }

  ApiReply get_region() {
    const Result<compat::RegionQuery> request = compat::decode_region_query(body_);
    if (!request) return reply_error(request.error());
    const EntityRef& of = request->agent;
    if (Status status = permit(Role::kRead, of.scope); !status.ok()) return reply_error(std::move(status));
    std::optional<compat::MemoryRegion> out;
    if (const std::optional<PeerInfo> held = find(of.scope, of.id)) {
      const Entity agent = compat::to_entity(*held);
      // The keys of a slime agent's regions are asked of it alone.
      const auto it = agent.regions.find(request->name);
      if (!agent.native && it != agent.regions.end()) out = it->second;
    }
    return reply_ok(compat::encode_region(out));
  }

  ApiReply set_desired_topology() {
    // These clients do not escape a '/' in a name.
    std::string agent_id = call_.path[2];
    for (std::size_t i = 3; i < call_.path.size(); ++i) agent_id += str("/", call_.path[i]);
    Result<compat::TopologyRequest> request = compat::decode_topology(body_);
    if (!request) return reply_error(request.error());
    if (Status status = check_name("agent_id", agent_id); !status.ok()) return reply_error(std::move(status));
    if (Status status = permit(Role::kJoin, request->scope); !status.ok())
      return reply_error(std::move(status));
    Outcome out = api_.submit(
        SetLinksCommand{request->scope, agent_id, std::move(request->target_peers), proof_or_admin(true)});
    if (!out.status.ok()) return reply_error(std::move(out.status));
    return reply_ok(compat::encode_status("ok", str("the links of '", agent_id, "' are wanted")));
  }

  ApiReply redis_address() {
    query_.permit_all();
    if (Status status = query_.finish(); !status.ok()) return reply_error(std::move(status));
    if (Status status = compat::decode_empty(body_); !status.ok()) return reply_error(std::move(status));
    return reply_ok(compat::encode_no_redis());
  }

 private:
  static bool gone(const Status& status) {
    return status.code() == Code::kNotFound || status.code() == Code::kAborted;
  }
  Status permit(Role needed, const std::string& scope) {
    query_.permit(needed, scope);
    return query_.finish();
  }
  // These clients know no session: what they made is for the token that made it to change.
  Proof proof() { return {Proof::Kind::kToken, {{}, query_.principal().token_id}}; }
  // On a server without tokens `anybody` is an administrator.
  Proof proof_or_admin(bool anybody) {
    const Principal& who = query_.principal();
    const bool admin = who.role == Role::kAdmin && (anybody || !who.token_id.empty());
    Proof out = proof();
    if (admin) out.kind = Proof::Kind::kTrusted;
    return out;
  }
  Status may_change(const PeerInfo& held) { return check_proof(proof(), held.name, held.owner); }
  // Held while what is there is changed, so that two changes of one record do not lose one of them.
  std::mutex& mutex_of(const std::string& scope, const std::string& id) {
    const std::size_t hash = std::hash<std::string>{}(str(scope, "\n", id));
    return api_.compat_mutexes_[hash % api_.compat_mutexes_.size()];
  }
  std::optional<PeerInfo> find(const std::string& scope, const std::string& id) {
    query_.about(id);
    const std::optional<PeerView> peer =
        api_.engine_->read([&](const Registry& registry) { return registry.view(scope, id); });
    if (!peer) return std::nullopt;
    PeerInfo out = *peer->info;
    out.expires_in = peer->expires_in;
    return out;
  }

  ApiReply start(const Entity& agent) {
    const std::lock_guard lock(mutex_of(agent.scope, agent.id));
    const std::optional<PeerInfo> held = find(agent.scope, agent.id);
    if (held && !compat::registered_here(held->instance))
      return native_peer({agent.scope, agent.type, agent.id});
    if (held) {
      ApiReply reply =
          Api::error(409, Code::kAlreadyExists, str("'", agent.id, "' in scope '", agent.scope, "' is alive"),
                     "use another alias, clean it up, or wait until its 60 s are over");
      reply.retry_after = held->expires_in;
      return reply;
    }
    return put(agent, compat::new_instance(), [&] { return compat::encode_started(agent); });
  }

  template <class Done>
  ApiReply put(const Entity& entity, const InstanceId& instance, const Done& done) {
    Result<Registration> registration = compat::to_registration(entity, instance);
    if (!registration) {
      if (registration.error().code() != Code::kResourceExhausted) return reply_error(registration.error());
      return Api::error(413, Code::kInvalidArgument, std::string(registration.error().text()), "");
    }
    Outcome out = api_.submit(RegisterCommand{std::move(*registration), 0, proof()});
    if (!out.status.ok()) return reply_error(std::move(out.status), "");
    return reply_ok(done());
  }

  // Changes the record of an agent that registered here.
  template <class Change>
  ApiReply update(const EntityRef& of, const Change& change) {
    if (Status status = permit(Role::kJoin, of.scope); !status.ok()) return reply_error(std::move(status));
    const std::lock_guard lock(mutex_of(of.scope, of.id));
    const std::optional<PeerInfo> held = find(of.scope, of.id);
    if (!held) return not_registered(of);
    Entity entity = compat::to_entity(*held);
    if (entity.native) return native_peer(of);
    if (entity.type != of.type) return not_registered(of);
    if (Status status = may_change(*held); !status.ok()) return reply_error(std::move(status));
    change(entity);
    return put(entity, held->instance, [] { return compat::encode_status("ok", "recorded"); });
  }

  // These lists have no pages, so there is a limit to what one may become. `type`: only those, whatever the
  // request says.
  template <class EncodeOne, class EncodeAll>
  ApiReply list(const EncodeOne& encode_one, const EncodeAll& encode_all, std::string_view type) {
    Result<compat::EntityFilter> filter = compat::decode_filter(body_);
    if (!filter) return reply_error(filter.error());
    if (Status status = permit(Role::kRead, filter->scope); !status.ok())
      return reply_error(std::move(status));
    const bool agents = !type.empty();
    if (agents) *filter = {filter->scope, std::string(type), {}};
    std::vector<std::string> items;
    std::size_t bytes = 0;
    // All of the scope, however large, in slices: the lock is free in between, and a peer that comes or goes
    // meanwhile may be in the list or not.
    const ScanBudget all{std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max()};
    api_.scans_.visit(filter->scope, {}, all, [&](const PeerView& peer) {
      if (!filter->kind.empty() && peer.info->kind != filter->kind) return true;
      const Entity entity = compat::to_entity(*peer.info);
      if (!filter->type.empty() && entity.type != filter->type) return true;
      items.push_back(encode_one(entity));
      bytes += items.back().size();
      return bytes <= limits::kCompatListBytes;
    });
    if (bytes > limits::kCompatListBytes)
      return Api::error(413, Code::kInvalidArgument,
                        str("the list has more than ", limits::kCompatListBytes, " bytes"),
                        agents ? "use GET /v1/peers, which has pages"
                               : "ask for one kind, or use GET /v1/peers, which has pages");
    return reply_ok(encode_all(items));
  }

  Api& api_;
  const Call& call_;
  Query& query_;
  const std::string_view body_;
};

std::vector<Api::Route> Api::compat_routes() {
  constexpr unsigned kCompat = Route::kCompat;
  return {
      {"GET", "/", kCompat | Route::kOpen, [](Api& api, const Call& c) { return Compat(api, c).root(); }},
      {"POST", "/start_peer_agent", kCompat,
       [](Api& api, const Call& c) { return Compat(api, c).start_agent(); }},
      {"POST", "/query", kCompat | Route::kScan,
       [](Api& api, const Call& c) { return Compat(api, c).list_agents(); }},
      {"POST", "/cleanup", kCompat, [](Api& api, const Call& c) { return Compat(api, c).cleanup(); }},
      {"POST", "/register_mr", kCompat,
       [](Api& api, const Call& c) { return Compat(api, c).register_region(); }},
      {"POST", "/get_mr_info", kCompat, [](Api& api, const Call& c) { return Compat(api, c).get_region(); }},
      {"POST", "/register", kCompat,
       [](Api& api, const Call& c) { return Compat(api, c).register_entity(); }},
      {"POST", "/unregister", kCompat, [](Api& api, const Call& c) { return Compat(api, c).unregister(); }},
      {"POST", "/heartbeat", kCompat, [](Api& api, const Call& c) { return Compat(api, c).heartbeat(); }},
      {"POST", "/get_entity_info", kCompat,
       [](Api& api, const Call& c) { return Compat(api, c).get_entity(); }},
      {"POST", "/list_entities", kCompat | Route::kScan,
       [](Api& api, const Call& c) { return Compat(api, c).list_entities(); }},
      {"POST", "/get_redis_address", kCompat,
       [](Api& api, const Call& c) { return Compat(api, c).redis_address(); }},
      {"POST", "/v1/desired_topology/{agent_id}", kCompat | Route::kRest,
       [](Api& api, const Call& c) { return Compat(api, c).set_desired_topology(); }},
  };
}

}  // namespace slime::ctrl
