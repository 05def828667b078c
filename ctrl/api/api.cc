#include "ctrl/api/api.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "ctrl/api/api_query.h"
#include "ctrl/compat/entities.h"
#include "ctrl/wire/url.h"

namespace slime::ctrl {

Api::Api(ApiOptions options, std::unique_ptr<Engine> engine, const Clock& clock, Prober prober)
    : options_(std::move(options)),
      clock_(clock),
      prober_(std::move(prober)),
      started_at_(clock.now()),
      rates_(options_.requests_per_second_of_token, limits::kTokens),
      engine_(std::move(engine)) {
  Tokens admin;
  if (options_.admin_token) admin.emplace(options_.admin_token->id, *options_.admin_token);
  admin_ = std::make_shared<const Tokens>(std::move(admin));
  engine_->on_event([this](const ScopedEvent& event) {
    const EventKind kind = event.event.kind;
    metrics_.count_event(event_kind_name(kind));
    if (kind == EventKind::kDeregistered || kind == EventKind::kExpired)
      reports_.forget(event.scope, event.event.name);
    if (options_.on_event) options_.on_event(event);
  });
  engine_->on_reset([this] {
    reports_.clear();
    if (options_.on_reset) options_.on_reset();
  });
}

ApiReply Api::error(int status, Code code, std::string message, std::string hint) {
  return {.status = status, .body = wire::encode(wire::Error{code, std::move(message), std::move(hint)})};
}

void Api::set_admin_token(TokenRecord token) {
  SLIME_CHECK(options_.admin_token.has_value());
  Tokens tokens;
  std::string id = token.id;
  tokens.emplace(std::move(id), std::move(token));
  auto made = std::make_shared<const Tokens>(std::move(tokens));
  const std::lock_guard lock(admin_mutex_);
  admin_.swap(made);
}

void Api::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
}

Outcome Api::submit(const Command& command) {
  const TimePoint begin = steady_clock().now();
  ++submitted_;
  Outcome out = engine_->submit(command);
  --submitted_;
  metrics_.observe_store(steady_clock().now() - begin);
  return out;
}

Nanos Api::tick() {
  const Nanos next = engine_->tick();
  backups_.expire(clock_.now());
  rotate_keys();
  return next;
}

namespace {

std::string_view method_of(std::string_view method) {
  static constexpr std::string_view kMethods[] = {"GET", "HEAD", "POST", "PUT", "DELETE"};
  const auto* it = std::find(std::begin(kMethods), std::end(kMethods), method);
  return it == std::end(kMethods) ? "other" : *it;
}

}  // namespace

ApiReply Api::handle(const ApiRequest& request) {
  const TimePoint begin = steady_clock().now();
  const std::optional<Target> target = parse_target(request.target.substr(0, limits::kTargetBytes));
  const Match found = target ? match(request.method, target->path) : Match{};
  ApiReply reply = answer(request, target, found);
  if (!reply.parked)
    metrics_.observe(method_of(request.method), found.path, reply.status, steady_clock().now() - begin);
  return reply;
}

ApiReply Api::answer(const ApiRequest& request, const std::optional<Target>& target, const Match& match) {
  if (request.target.size() > limits::kTargetBytes)
    return error(414, Code::kInvalidArgument, str("the URL has more than ", limits::kTargetBytes, " bytes"),
                 "");
  if (request.target.substr(0, request.target.find('?')).size() > limits::kPathBytes)
    return error(414, Code::kInvalidArgument, str("the path has more than ", limits::kPathBytes, " bytes"),
                 "");
  if (!target) return error(400, Code::kInvalidArgument, "the URL has a bad % escape, or is not UTF-8", "");
  ApiReply reply = respond(request, *target, match);
  if (reply.status >= 400 && match.compat) compat::translate_error(reply);
  return reply;
}

ApiReply Api::respond(const ApiRequest& request, const Target& target, const Match& match) try {
  if (request.body.size() > limits::kBodyBytes)
    return error(413, Code::kInvalidArgument, str("the body has more than ", limits::kBodyBytes, " bytes"),
                 "publish in several requests");
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return reply_error(Status(Code::kUnavailable, "nanoctrl is shutting down"));
  }
  // Before anything of the body is looked at.
  Result<Principal> principal = match.open ? Principal{} : identify(request);
  std::string token_id = principal ? principal->token_id : std::string();
  // Who has proved to have a token may call this server what it likes.
  if (principal && token_id.empty()) {
    if (Status status = check_names(request, match.open); !status.ok()) principal = std::move(status);
  }
  if (principal && !request.again) {
    if (Status status = take_turn(*principal); !status.ok()) principal = std::move(status);
  }
  const Principal nobody;
  Query query(target.query, principal ? *principal : nobody);
  const Call call{request, target.path, query};
  ApiReply reply = principal ? route(call, match) : reply_error(principal.error());
  if (reply.status == 401 || reply.status == 403 || reply.status == 409 || reply.status == 429)
    note_refusal(call, reply);
  reply.token_id = std::move(token_id);
  return reply;
} catch (const std::exception& e) {
  return error(500, Code::kInternal, str("unexpected: ", e.what()), "report this as a bug");
}

namespace {

// The host of a Host header, or of what follows the scheme in an Origin: without its port.
std::string host_of(std::string_view text) {
  const std::size_t bracket = text.starts_with('[') ? text.find(']') : std::string_view::npos;
  const std::size_t end = bracket == std::string_view::npos ? text.find(':') : bracket + 1;
  std::string_view host = text.substr(0, end);
  if (bracket != std::string_view::npos) host = host.substr(1, bracket - 1);
  std::string out(host);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

bool is_loopback_origin(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return is_loopback(host_of(origin.substr(scheme.size())));
  }
  return false;
}

}  // namespace

Status Api::check_names(const ApiRequest& request, bool open) const {
  // Without a client it comes from this process.
  if (!options_.only_loopback_names || request.client.empty()) return {};
  const bool host = is_loopback(host_of(request.host));
  if (host && (request.origin.empty() || is_loopback_origin(request.origin))) return {};
  // Elsewhere whoever came so far without a token needed none.
  if (open && engine_->look([&](const Registry& registry) { return requires_token(registry); })) return {};
  if (request.host.empty()) return {Code::kInvalidArgument, "there is no Host header"};
  constexpr std::size_t kShown = 100;
  return {Code::kPermissionDenied,
          host ? str("a web page of ", request.origin.substr(0, kShown),
                     " asks, and this nanoctrl, which has no tokens, answers only pages of this machine")
               : str("'", request.host.substr(0, kShown),
                     "' is not a name of this machine, and this nanoctrl, which has no tokens, answers only "
                     "to localhost, 127.0.0.1 and [::1]")};
}

bool Api::requires_token(const Registry& registry) const {
  return options_.require_token || !admin()->empty() || !registry.tokens().empty();
}

// Beside what each address may: one token may be at many.
Status Api::take_turn(const Principal& principal) {
  if (principal.token_id.empty()) return {};
  const std::lock_guard lock(rates_mutex_);
  if (rates_.take(principal.token_id, steady_clock().now())) return {};
  return {Code::kResourceExhausted, str("the token ", principal.token_id, " is used for too many requests")};
}

Result<Principal> Api::identify(const ApiRequest& request) const {
  const std::uint64_t now = options_.unix_time_s();
  const std::shared_ptr<const Tokens> root = admin();
  if (!root->empty()) {
    if (Result<Principal> found = authenticate(*root, request.authorization, now)) return found;
  }
  return engine_->look([&](const Registry& registry) -> Result<Principal> {
    return requires_token(registry) ? authenticate(registry.tokens(), request.authorization, now)
                                    : Principal{};
  });
}

// Never the token: what is not known may be one with a typing error, and who revokes one may give all of it.
void Api::note_refusal(const Call& call, const ApiReply& reply) {
  const std::optional<wire::Error> error = wire::decode_error(reply.body);
  const std::string_view target = call.request.target;
  const bool of_token = call.path.size() > 2 && call.path[1] == "tokens";
  const std::string_view path = of_token ? "/v1/tokens/..." : target.substr(0, target.find('?'));
  const bool of_peer = call.path.size() > 2 && call.path[1] == "peers";
  const std::string& scope = call.query.scope_asked();
  refusals_("refused", {{"status", std::to_string(reply.status)},
                        {"method", std::string(call.request.method.substr(0, 16))},
                        {"path", std::string(path.substr(0, limits::kNameBytes))},
                        {"client", std::string(call.request.client)},
                        {"scope", scope.empty() ? call.query.text("scope") : scope},
                        {"peer", of_peer ? call.path[2] : call.query.peer_asked()},
                        {"token_id", call.query.principal().token_id},
                        {"reason", error ? error->message : ""}});
}

ApiReply Api::health(Query& query) {
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  return reply_ok(wire::encode_member("status", "ok"));
}

// For everybody, so what is wrong with which store is told in the log alone.
ApiReply Api::readiness(Query& query) {
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  if (engine_->ready().ok()) return reply_ok(wire::encode_member("status", "ready"));
  return reply_error(Status(Code::kUnavailable, "the store cannot be written: changes are refused"),
                     "nanoctrl's log says why; heartbeats and queries go on");
}

ApiReply Api::server_status(Query& query) {
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  ServerStatus out;
  out.version = SLIME_VERSION;
  out.uptime = clock_.now() - started_at_;
  out.watchers = options_.parked ? options_.parked() : 0;
  return engine_->read([&](const Registry& registry) {
    out.server_epoch = registry.options().epoch;
    out.ttl = registry.options().ttl;
    // Of others' scopes a token of one does not even learn the size.
    const Principal& who = query.principal();
    out.scopes = who.everywhere() ? registry.scope_count() : 1;
    out.peers = who.everywhere() ? registry.peer_count() : registry.peer_count(who.scope);
    return reply_ok(wire::encode(out, registry.record_bytes()));
  });
}

ApiReply Api::register_peer(Query& query, std::string_view body) {
  Result<wire::RegisterRequest> request = wire::decode_register(body);
  if (!request) return reply_error(request.error());
  query.permit(Role::kJoin, request->registration.scope);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  query.about(request->registration.name);
  Secret session = request->session.empty() ? new_session() : std::move(request->session);
  RegisterCommand command{std::move(request->registration), 0, query.proof(session)};
  std::optional<std::pair<Holder, ProbeResult>> replaced;
  // Another instance may win the name while the holder is probed; then that one is the holder to look at.
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    Outcome out = submit(command);
    if (out.status.ok()) {
      if (replaced) note_takeover(command, out.lease, replaced->first, replaced->second);
      Result<ScopeKeys> keys = keys_for(query.principal(), command.registration.scope, 0);
      if (!keys) return reply_error(keys.error());
      out.lease.keys = std::move(*keys);
      out.lease.session = std::move(session);
      return reply_ok(wire::encode(out.lease));
    }
    if (!out.holder) return reply_error(std::move(out.status));
    // Also where the answer decides nothing: who takes a name from somebody alive is to be seen in the log.
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

void Api::note_takeover(const RegisterCommand& command, const Lease& lease, const Holder& holder,
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

ProbeResult Api::probe(const Holder& holder) {
  // Whoever answers there knows nothing of an instance that nanoctrl made.
  if (compat::registered_here(holder.instance)) return ProbeResult::kSilent;
  {
    const Lock lock(mutex_);
    if (probes_ >= options_.probes_max) return ProbeResult::kSilent;
    ++probes_;
  }
  const ProbeResult out = prober_(holder.address, holder.instance);
  const Lock lock(mutex_);
  --probes_;
  return out;
}

ApiReply Api::page(Query& query, std::string_view list, const EncodePeer& encode, const std::string& only) {
  const std::string scope = query.scope(Role::kRead);
  const std::string after = query.text("after");
  const std::uint64_t limit = query.integer("limit", limits::kPeersPerPage).value_or(limits::kPeersPerPage);
  if (limit == 0) query.problem("query parameter 'limit' is zero");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));

  std::vector<std::string> items;
  std::uint64_t peers = 0;
  std::size_t bytes = 0;
  const auto take = [&](const PeerView& peer) {
    if (peer.info->name <= after) return true;  // of one that was asked for by its name
    const std::size_t before = items.size();
    encode(peer, items);
    if (items.size() == before) return true;
    for (std::size_t i = before; i < items.size(); ++i) bytes += items[i].size();
    return ++peers < limit && bytes < limits::kPageBytes;
  };
  ScanHead seen = only.empty() ? scans_.visit(scope, after, {}, take) : scans_.visit_one(scope, only, take);
  return reply_ok(wire::encode_page(list, items, {seen.server_epoch, seen.revision, std::move(seen.next)}));
}

ApiReply Api::list_peers(Query& query) {
  const std::string kind = query.text("kind");
  const Labels labels = query.labels("labels");
  return page(query, "peers", [&](const PeerView& peer, std::vector<std::string>& out) {
    if ((!kind.empty() && peer.info->kind != kind) || !has_labels(peer.info->metadata, labels)) return;
    out.push_back(wire::encode(*peer.info, peer.expires_in));
  });
}

ApiReply Api::list_services(Query& query) {
  const std::string kind = query.text("kind");
  const std::string name = query.text("name");
  const Labels labels = query.labels("labels");
  const std::string health_text = query.text("health");
  const std::optional<Health> health = parse_health(health_text);
  if (!health && query.has("health"))
    query.problem("query parameter 'health' is not serving, draining or not_serving");
  return page(query, "services", [&](const PeerView& view, std::vector<std::string>& out) {
    const PeerInfo& peer = *view.info;
    for (const ServiceInfo& service : peer.services) {
      if ((!kind.empty() && service.kind != kind) || (!name.empty() && service.name != name)) continue;
      if ((health && service.health != *health) || !has_labels(service.labels, labels)) continue;
      out.push_back(
          wire::encode(ServiceEntry{peer.name, peer.address, peer.instance, peer.incarnation, service}));
    }
  });
}

ApiReply Api::list_regions(Query& query) {
  const std::string owner = query.text("peer");
  const std::string name = query.text("name");
  return page(
      query, "regions",
      [&](const PeerView& view, std::vector<std::string>& out) {
        const PeerInfo& peer = *view.info;
        for (const RegionInfo& region : peer.regions) {
          if (!name.empty() && region.name != name) continue;
          out.push_back(
              wire::encode(RegionEntry{peer.name, peer.address, peer.instance, peer.incarnation, region}));
        }
      },
      owner);
}

ApiReply Api::watch(Query& query, bool answer_now) {
  const auto max_ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.watch_wait_max).count();
  const std::string scope = query.scope(Role::kRead);
  const std::optional<std::uint64_t> since = query.integer("since", limits::kIntegerMax);
  const std::uint64_t wait_ms = query.integer("wait_ms", static_cast<std::uint64_t>(max_ms)).value_or(0);
  if (!since) query.problem("query parameter 'since' is missing; lists and registrations return a revision");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));

  const Changes changes =
      engine_->read([&](const Registry& registry) { return registry.changes(scope, *since); });
  if (changes.resync || !changes.events.empty() || answer_now || wait_ms == 0)
    return reply_ok(wire::encode(changes));
  ApiReply reply;
  reply.parked = Parked{scope, std::chrono::milliseconds(static_cast<std::int64_t>(wait_ms))};
  return reply;
}

ApiReply Api::get_peer(Query& query, const std::string& name) {
  const std::string scope = query.scope(Role::kRead);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const auto peer = engine_->read([&](const Registry& registry) { return registry.view(scope, name); });
  if (peer) return reply_ok(wire::encode(*peer->info, peer->expires_in));
  return reply_error(Status(Code::kNotFound, str("'", name, "' is not registered in scope '", scope, "'")),
                     "look at the list of peers, and at the scope");
}

ApiReply Api::deregister(Query& query, const std::string& name, std::string_view session_text) {
  const std::string scope = query.scope(Role::kJoin);
  const std::optional<Secret> session = session_text.empty() ? Secret() : wire::parse_session(session_text);
  if (!session) query.problem("the header Slime-Session is not 64 hexadecimal digits");
  const std::optional<std::uint64_t> incarnation = query.integer("incarnation", limits::kIntegerMax);
  if (!incarnation) query.problem("query parameter 'incarnation' is missing");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Outcome out = submit(DeregisterCommand{scope, name, *incarnation, query.proof_or_admin(*session, false)});
  return out.status.ok() ? reply_ok("{}") : reply_error(std::move(out.status));
}

ApiReply Api::heartbeat(Query& query, const std::string& name, std::string_view body) {
  const std::string scope = query.scope(Role::kJoin);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Result<wire::HeartbeatRequest> request = wire::decode_heartbeat(body);
  if (!request) return reply_error(request.error());
  if (request->report) {
    if (Status status = check_report(*request->report); !status.ok()) return reply_error(std::move(status));
  }
  Outcome out =
      engine_->submit(HeartbeatCommand{scope, name, request->incarnation, query.proof(request->session)});
  if (!out.status.ok()) return reply_error(std::move(out.status));
  if (request->report) reports_.put(scope, name, request->incarnation, std::move(*request->report));
  // Without a revision of the client's there is nothing to tell but the current one.
  const std::uint64_t since = request->since.value_or(out.lease.revision);
  Changes changes = engine_->read([&](const Registry& registry) { return registry.changes(scope, since); });
  if (request->keys_have) {
    // The lease matters more than keys that cannot be made now: the next heartbeat asks again.
    Result<ScopeKeys> keys = keys_for(query.principal(), scope, *request->keys_have);
    if (keys) changes.keys = std::move(*keys);
  }
  return reply_ok(wire::encode(changes));
}

ApiReply Api::heartbeats(Query& query, std::string_view body) {
  const std::string scope = query.scope(Role::kJoin);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const Result<wire::HeartbeatsRequest> request = wire::decode_heartbeats(body);
  if (!request) return reply_error(request.error());
  Heartbeats out;
  for (const PeerRef& peer : request->peers) {
    Outcome beat =
        engine_->submit(HeartbeatCommand{scope, peer.name, peer.incarnation, query.proof(peer.session)});
    // A store that is away concerns all of them.
    if (beat.status.code() == Code::kUnavailable) return reply_error(std::move(beat.status));
    if (!beat.status.ok()) out.lost.push_back({peer.name, beat.status.code()});
  }
  out.changes = engine_->read([&](const Registry& registry) {
    return registry.changes(scope, request->since.value_or(registry.revision(scope)));
  });
  return reply_ok(wire::encode(out));
}

ApiReply Api::update_regions(Query& query, const std::string& name, std::string_view body, bool replace) {
  const std::string scope = query.scope(Role::kJoin);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Result<wire::RegionsRequest> request = wire::decode_regions(body, replace);
  if (!request) return reply_error(request.error());
  if (Status status = check_regions(request->publish); !status.ok()) return reply_error(std::move(status));
  return apply_update(UpdateRegionsCommand{scope, name, request->incarnation, replace,
                                           std::move(request->publish), std::move(request->unpublish),
                                           query.proof(request->session)});
}

ApiReply Api::update_services(Query& query, const std::string& name, std::string_view body, bool replace) {
  const std::string scope = query.scope(Role::kJoin);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Result<wire::ServicesRequest> request = wire::decode_services(body, replace);
  if (!request) return reply_error(request.error());
  if (Status status = check_services(request->publish); !status.ok()) return reply_error(std::move(status));
  return apply_update(UpdateServicesCommand{scope, name, request->incarnation, replace,
                                            std::move(request->publish), std::move(request->unpublish),
                                            query.proof(request->session)});
}

ApiReply Api::get_links(Query& query, const std::string& name) {
  const std::string scope = query.scope(Role::kRead);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const std::shared_ptr<const Registry::Targets> targets =
      engine_->look([&](const Registry& registry) { return registry.links(scope, name); });
  return reply_ok(wire::encode_targets(targets == nullptr ? Registry::Targets{} : *targets));
}

ApiReply Api::set_links(Query& query, const std::string& name, std::string_view body) {
  const std::string scope = query.scope(Role::kJoin);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Result<wire::LinksRequest> request = wire::decode_links_request(body);
  if (!request) return reply_error(request.error());
  Outcome out = submit(SetLinksCommand{scope, name, std::move(request->targets),
                                       query.proof_or_admin(request->session, true)});
  return out.status.ok() ? reply_ok("{}") : reply_error(std::move(out.status));
}

ApiReply Api::apply_update(const Command& command) {
  Outcome out = submit(command);
  return out.status.ok() ? reply_ok(wire::encode(out.lease)) : reply_error(std::move(out.status));
}

}  // namespace slime::ctrl
