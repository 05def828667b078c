#include "ctrl/api/peers.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/str.h"
#include "ctrl/api/peer_pages.h"
#include "ctrl/compat/entities.h"
#include "ctrl/http/replies.h"
#include "ctrl/limits.h"
#include "ctrl/wire/json_bodies.h"

namespace slime::ctrl {

PeerRoutes::PeerRoutes(Context& context, KeyMaker& keys, Prober prober)
    : context_(context), keys_(keys), prober_(std::move(prober)) {}

ApiReply PeerRoutes::list(const Call& call) {
  Query& query = call.query;
  const std::string kind = query.text("kind");
  const Labels labels = query.labels("labels");
  return peer_page(context_, query, "peers", [&](const PeerView& peer, std::vector<std::string>& out) {
    if ((!kind.empty() && peer.info->kind != kind) || !has_labels(peer.info->metadata, labels)) return;
    out.push_back(wire::encode(*peer.info, peer.expires_in));
  });
}

ApiReply PeerRoutes::add(const Call& call) {
  Query& query = call.query;
  Result<wire::RegisterRequest> request = wire::decode_register(call.request.body);
  if (!request) return reply_error(request.error());
  query.permit(Role::kJoin, request->registration.scope);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  query.about(request->registration.name);
  Secret session = request->session.empty() ? new_session() : std::move(request->session);
  RegisterCommand command{std::move(request->registration), 0, query.proof(session)};
  std::optional<std::pair<Holder, ProbeResult>> replaced;
  // Attempts to register a contested name. Another instance may take the name during the probe of
  // its holder; the next attempt then probes the new holder.
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    Outcome out = context_.submit(command);
    if (out.status.ok()) {
      if (replaced) note_takeover(command, out.lease, replaced->first, replaced->second);
      Result<ScopeKeys> keys = keys_.keys_for(query.principal(), command.registration.scope, 0);
      if (!keys) return reply_error(keys.error());
      out.lease.keys = std::move(*keys);
      out.lease.session = std::move(session);
      return reply_ok(wire::encode(out.lease));
    }
    if (!out.holder) return reply_error(std::move(out.status));
    // Probes even with `takeover`, which ignores the result: the log must show if the holder was
    // alive.
    const ProbeResult probed = probe(*out.holder);
    if ((probed == ProbeResult::kGone || request->takeover) && attempt < kAttempts) {
      command.takes_over = out.holder->incarnation;
      replaced.emplace(std::move(*out.holder), probed);
      continue;
    }
    if (probed == ProbeResult::kSilent && !request->takeover) {
      ApiReply reply = reply_error(std::move(out.status),
                                   "it does not answer: end it, or retry when its lease has run out");
      reply.retry_after = out.holder->expires_in;
      return reply;
    }
    return reply_error(std::move(out.status), probed == ProbeResult::kSame
                                                  ? "it is alive: use another name, or end it first"
                                                  : "several want the name at once: retry");
  }
}

void PeerRoutes::note_takeover(const RegisterCommand& command, const Lease& lease, const Holder& holder,
                               ProbeResult probed) {
  if (lease.incarnation == holder.incarnation) return;
  const bool alive = probed == ProbeResult::kSame;
  const Registration& peer = command.registration;
  const bool said =
      takeovers_("a name was taken over", {{"scope", peer.scope},
                                           {"peer", peer.name},
                                           {"old_incarnation", std::to_string(holder.incarnation)},
                                           {"incarnation", std::to_string(lease.incarnation)},
                                           {"old_address", holder.address},
                                           {"address", peer.address},
                                           {"holder", alive                          ? "alive"
                                                      : probed == ProbeResult::kGone ? "gone"
                                                                                     : "silent"},
                                           {"token_id", command.by.owner.token_id}});
  if (alive && said)
    SLIME_LOG(LogLevel::kWarning, "nanoctrl", "'", peer.name, "' in scope '", peer.scope,
              "' was taken from incarnation ", holder.incarnation, " at ", holder.address,
              ", which is alive; ", peer.address, " has it now");
}

ProbeResult PeerRoutes::probe(const Holder& holder) {
  // A NanoCtrl client has no instance id, so nanoctrl made this id. The client's listener does not
  // know it, and a probe would be useless.
  if (compat::registered_here(holder.instance)) return ProbeResult::kSilent;
  {
    const MutexLock lock(probes_mutex_);
    if (probes_ >= context_.options().probes_max) return ProbeResult::kSilent;
    ++probes_;
  }
  const ProbeResult out = prober_(holder.address, holder.instance);
  const MutexLock lock(probes_mutex_);
  --probes_;
  return out;
}

ApiReply PeerRoutes::watch(const Call& call) {
  Query& query = call.query;
  const auto max_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(context_.options().watch_wait_max).count();
  const std::string scope = query.scope(Role::kRead);
  const std::optional<std::uint64_t> since = query.integer("since", limits::kIntegerMax);
  const std::uint64_t wait_ms = query.integer("wait_ms", static_cast<std::uint64_t>(max_ms)).value_or(0);
  if (!since) query.problem("query parameter 'since' is missing; lists and registrations return a revision");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));

  const Changes changes =
      context_.engine().read([&](const Registry& registry) { return registry.changes(scope, *since); });
  if (changes.resync || !changes.events.empty() || call.request.answer_now || wait_ms == 0)
    return reply_ok(wire::encode(changes));
  ApiReply reply;
  reply.parked = Parked{scope, std::chrono::milliseconds(static_cast<std::int64_t>(wait_ms))};
  return reply;
}

ApiReply PeerRoutes::get(const Call& call) {
  const std::string& name = call.path[2];
  Query& query = call.query;
  const std::string scope = query.scope(Role::kRead);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const auto peer =
      context_.engine().read([&](const Registry& registry) { return registry.view(scope, name); });
  if (peer) return reply_ok(wire::encode(*peer->info, peer->expires_in));
  return reply_error(Status(Code::kNotFound, str("'", name, "' is not registered in scope '", scope, "'")),
                     "look at the list of peers, and at the scope");
}

ApiReply PeerRoutes::remove(const Call& call) {
  const std::string_view session_text = call.request.session;
  const std::string& name = call.path[2];
  Query& query = call.query;
  const std::string scope = query.scope(Role::kJoin);
  const std::optional<Secret> session = session_text.empty() ? Secret() : wire::parse_session(session_text);
  if (!session) query.problem("the header Slime-Session is not 64 hexadecimal digits");
  const std::optional<std::uint64_t> incarnation = query.integer("incarnation", limits::kIntegerMax);
  if (!incarnation) query.problem("query parameter 'incarnation' is missing");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Outcome out =
      context_.submit(DeregisterCommand{scope, name, *incarnation, query.proof_or_admin(*session, false)});
  return out.status.ok() ? reply_ok("{}") : reply_error(std::move(out.status));
}

ApiReply PeerRoutes::heartbeat(const Call& call) {
  const std::string& name = call.path[2];
  Query& query = call.query;
  const std::string scope = query.scope(Role::kJoin);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Result<wire::HeartbeatRequest> request = wire::decode_heartbeat(call.request.body);
  if (!request) return reply_error(request.error());
  if (request->report) {
    if (Status status = check_report(*request->report); !status.ok()) return reply_error(std::move(status));
  }
  Outcome out = context_.engine().submit(
      HeartbeatCommand{scope, name, request->incarnation, query.proof(request->session)});
  if (!out.status.ok()) return reply_error(std::move(out.status));
  if (request->report) context_.reports().put(scope, name, request->incarnation, std::move(*request->report));
  // Without `since`, the reply contains the current revision and no events.
  const std::uint64_t since = request->since.value_or(out.lease.revision);
  Changes changes =
      context_.engine().read([&](const Registry& registry) { return registry.changes(scope, since); });
  if (request->keys_have) {
    // Ignores an error of keys_for(): the lease is renewed, and the next heartbeat asks for the
    // keys again.
    Result<ScopeKeys> keys = keys_.keys_for(query.principal(), scope, *request->keys_have);
    if (keys) changes.keys = std::move(*keys);
  }
  return reply_ok(wire::encode(changes));
}

ApiReply PeerRoutes::heartbeats(const Call& call) {
  Query& query = call.query;
  const std::string scope = query.scope(Role::kJoin);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const Result<wire::HeartbeatsRequest> request = wire::decode_heartbeats(call.request.body);
  if (!request) return reply_error(request.error());
  Heartbeats out;
  for (const PeerRef& peer : request->peers) {
    Outcome beat = context_.engine().submit(
        HeartbeatCommand{scope, peer.name, peer.incarnation, query.proof(peer.session)});
    // kUnavailable means that the store failed, which affects all peers of the request.
    if (beat.status.code() == Code::kUnavailable) return reply_error(std::move(beat.status));
    if (!beat.status.ok()) out.lost.push_back({peer.name, beat.status.code()});
  }
  out.changes = context_.engine().read([&](const Registry& registry) {
    return registry.changes(scope, request->since.value_or(registry.revision(scope)));
  });
  return reply_ok(wire::encode(out));
}

}  // namespace slime::ctrl
