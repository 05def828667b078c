#include "ctrl/api.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <optional>
#include <set>
#include <utility>

#include "base/str.h"
#include "ctrl/url.h"
#include "ctrl/wire.h"

namespace slime::ctrl {
namespace {

int http_status(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
    case Code::kUnimplemented:
      return 404;
    case Code::kAlreadyExists:
      return 409;
    case Code::kAborted:
      return 410;
    case Code::kResourceExhausted:
      return 429;
    case Code::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

std::string_view hint_for(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "fix the request; docs/nanoctrl-api.md has an example of each";
    case Code::kNotFound:
      return "register again: the lease ran out, or nanoctrl restarted";
    case Code::kAborted:
      return "another instance owns the name now; use a different name";
    case Code::kResourceExhausted:
      return "a limit of this nanoctrl; remove what is not needed or use another one";
    default:
      return "";
  }
}

ApiReply reply_error(Status status, std::string_view hint) {
  return Api::error(http_status(status.code()), status.code(), status.text(), std::string(hint));
}
ApiReply reply_error(Status status) {
  const std::string_view hint = hint_for(status.code());
  return reply_error(std::move(status), hint);
}
ApiReply reply_ok(std::string body) { return {.status = 200, .body = std::move(body)}; }

ApiReply wrong_method(std::string_view method, std::string allowed) {
  ApiReply out = Api::error(405, Code::kUnimplemented, str(method, " is not possible here"),
                            str("this route has ", allowed));
  out.allow = std::move(allowed);
  return out;
}

ApiReply no_route() {
  return Api::error(404, Code::kUnimplemented, "there is no such route",
                    "docs/nanoctrl-api.md lists them; a '/' inside a name is written %2F");
}

// A browser sends other types across origins without asking first: a page that somebody visits must not
// register peers on their machine.
bool json_type(std::string_view type) {
  constexpr std::string_view kJson = "application/json";
  return type.starts_with(kJson) &&
         (type.size() == kJson.size() || type[kJson.size()] == ';' || type[kJson.size()] == ' ');
}

}  // namespace

class Api::Query {
 public:
  explicit Query(std::vector<std::pair<std::string, std::string>> pairs) : pairs_(std::move(pairs)) {}

  // Empty when absent.
  std::string text(std::string_view key) {
    known_.insert(key);
    const auto is_key = [key](const auto& pair) { return pair.first == key; };
    const auto it = std::find_if(pairs_.begin(), pairs_.end(), is_key);
    if (it == pairs_.end()) return {};
    if (std::find_if(std::next(it), pairs_.end(), is_key) != pairs_.end())
      problem(str("query parameter '", key, "' appears twice"));
    return it->second;
  }
  std::string name(std::string_view key, std::string fallback) {
    std::string value = text(key);
    if (value.empty()) return fallback;
    if (Status status = check_name(key, value); !status.ok()) problem(status.text());
    return value;
  }
  std::optional<std::uint64_t> integer(std::string_view key, std::uint64_t max) {
    const std::string value = text(key);
    if (value.empty()) return std::nullopt;
    std::uint64_t out = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error != std::errc() || end != value.data() + value.size() || out > max)
      problem(str("query parameter '", key, "' is not an integer from 0 to ", max));
    return out;
  }
  void problem(std::string text) {
    if (status_.ok()) status_ = Status(Code::kInvalidArgument, std::move(text));
  }
  // After everything was read: a parameter that nobody asked for is a problem too.
  Status finish() {
    for (const auto& [key, value] : pairs_) {
      if (!known_.contains(key)) problem(str("unknown query parameter '", key.substr(0, 64), "'"));
    }
    return std::move(status_);
  }

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
  std::set<std::string_view> known_;  // the literals of the callers
  Status status_;
};

Api::Api(ApiOptions options, std::unique_ptr<Engine> engine, const Clock& clock, Prober prober)
    : options_(std::move(options)),
      clock_(clock),
      prober_(std::move(prober)),
      started_at_(clock.now()),
      engine_(std::move(engine)) {
  engine_->on_event([this](const ScopedEvent& event) {
    if (options_.on_event) options_.on_event(event);
    const std::lock_guard lock(mutex_);
    ++changes_;
    changed_.notify_all();
  });
  engine_->on_reset([this] {
    const std::lock_guard lock(mutex_);
    ++changes_;
    changed_.notify_all();
  });
}

ApiReply Api::error(int status, Code code, std::string message, std::string hint) {
  return {.status = status, .body = wire::encode(wire::Error{code, std::move(message), std::move(hint)})};
}

void Api::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

Nanos Api::tick() { return engine_->tick(); }

ApiReply Api::handle(const ApiRequest& request) try {
  if (request.target.size() > limits::kTargetBytes)
    return error(414, Code::kInvalidArgument, str("the URL has more than ", limits::kTargetBytes, " bytes"),
                 "");
  if (request.body.size() > limits::kBodyBytes)
    return error(413, Code::kInvalidArgument, str("the body has more than ", limits::kBodyBytes, " bytes"),
                 "publish in several requests");
  std::optional<Target> target = parse_target(request.target);
  if (!target) return error(400, Code::kInvalidArgument, "the URL has a bad % escape", "");
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return reply_error(Status(Code::kUnavailable, "nanoctrl is shutting down"));
  }
  Query query(std::move(target->query));
  return route(request, target->path, query);
} catch (const std::exception& e) {
  return error(500, Code::kInternal, str("unexpected: ", e.what()), "report this as a bug");
}

ApiReply Api::route(const ApiRequest& request, const std::vector<std::string>& path, Query& query) {
  const std::string_view method = request.method == "HEAD" ? "GET" : request.method;
  const bool body_expected = method == "POST" || method == "PUT";
  if (body_expected && !json_type(request.content_type))
    return error(415, Code::kInvalidArgument, "the body is not declared as JSON",
                 "send the header Content-Type: application/json");
  const bool get = method == "GET";
  if (path.size() == 1 && path[0] == "healthz") {
    if (!get) return wrong_method(request.method, "GET");
    if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
    return reply_ok(wire::encode_member("status", "ok"));
  }
  if (path.size() < 2 || path[0] != "v1") return no_route();
  if (path[1] == "peers") {
    if (path.size() > 2) return route_peer(request, path, query);
    if (method == "POST") return register_peer(query, request.body);
    return get ? list_peers(query) : wrong_method(request.method, "GET, POST");
  }
  if (path.size() != 2) return no_route();
  if (path[1] == "services") return get ? list_services(query) : wrong_method(request.method, "GET");
  if (path[1] == "regions") return get ? list_regions(query) : wrong_method(request.method, "GET");
  if (path[1] == "watch") return get ? watch(query) : wrong_method(request.method, "GET");
  if (path[1] == "status") return get ? server_status(query) : wrong_method(request.method, "GET");
  return no_route();
}

ApiReply Api::route_peer(const ApiRequest& request, const std::vector<std::string>& path, Query& query) {
  const std::string& name = path[2];
  const std::string_view method = request.method;
  if (Status status = check_name("name", name); !status.ok()) return reply_error(std::move(status));
  if (path.size() == 3) {
    if (method == "GET" || method == "HEAD") return get_peer(query, name);
    return method == "DELETE" ? deregister(query, name) : wrong_method(method, "GET, DELETE");
  }
  if (path.size() != 4) return no_route();
  if (path[3] == "heartbeat")
    return method == "POST" ? heartbeat(query, name, request.body) : wrong_method(method, "POST");
  const bool update = method == "POST" || method == "PUT";
  if (path[3] == "regions")
    return update ? update_regions(query, name, request.body, method == "PUT")
                  : wrong_method(method, "POST, PUT");
  if (path[3] == "services")
    return update ? update_services(query, name, request.body, method == "PUT")
                  : wrong_method(method, "POST, PUT");
  return no_route();
}

ApiReply Api::server_status(Query& query) {
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  ServerStatus out;
  out.version = SLIME_VERSION;
  out.uptime = clock_.now() - started_at_;
  {
    const Lock lock(mutex_);
    out.watchers = watchers_;
  }
  return engine_->read([&](const Registry& registry) {
    out.server_epoch = registry.options().epoch;
    out.ttl = registry.options().ttl;
    out.scopes = registry.scope_count();
    out.peers = registry.peer_count();
    return reply_ok(wire::encode(out, registry.record_bytes()));
  });
}

ApiReply Api::register_peer(Query& query, std::string_view body) {
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Result<wire::RegisterRequest> request = wire::decode_register(body);
  if (!request) return reply_error(request.error());
  RegisterCommand command{std::move(request->registration), 0};
  // Another instance may win the name while the holder is probed; then that one is the holder to look at.
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    Outcome out = engine_->submit(command);
    if (out.status.ok()) return reply_ok(wire::encode(out.lease));
    if (!out.holder) return reply_error(std::move(out.status));
    const ProbeResult probed = request->takeover ? ProbeResult::kGone : probe(*out.holder);
    if (probed == ProbeResult::kGone && attempt < kAttempts) {
      command.takes_over = out.holder->incarnation;
      continue;
    }
    if (probed == ProbeResult::kSilent) {
      ApiReply reply = reply_error(
          std::move(out.status), "it does not answer: retry when its lease has run out, or set \"takeover\"");
      reply.retry_after = out.holder->expires_in;
      return reply;
    }
    return reply_error(std::move(out.status), probed == ProbeResult::kSame
                                                  ? "it is alive: use another name, or set \"takeover\""
                                                  : "several want the name at once: retry");
  }
}

ProbeResult Api::probe(const Holder& holder) {
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

ApiReply Api::page(Query& query, std::string_view list, const EncodePeer& encode) {
  const std::string scope = query.name("scope", "default");
  const std::string after = query.text("after");
  const std::uint64_t limit = query.integer("limit", limits::kPeersPerPage).value_or(limits::kPeersPerPage);
  if (limit == 0) query.problem("query parameter 'limit' is zero");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));

  std::vector<std::string> items;
  std::uint64_t peers = 0;
  std::size_t bytes = 0;
  const auto head = engine_->read([&](const Registry& registry) {
    wire::PageHead out{registry.options().epoch, registry.revision(scope), std::nullopt};
    out.next = registry.visit(scope, after, [&](const PeerInfo& peer, Nanos expires_in) {
      const std::size_t before = items.size();
      encode(peer, expires_in, items);
      if (items.size() == before) return true;
      for (std::size_t i = before; i < items.size(); ++i) bytes += items[i].size();
      return ++peers < limit && bytes < limits::kPageBytes;
    });
    return out;
  });
  return reply_ok(wire::encode_page(list, items, head));
}

ApiReply Api::list_peers(Query& query) {
  const std::string kind = query.text("kind");
  return page(query, "peers", [&](const PeerInfo& peer, Nanos expires_in, std::vector<std::string>& out) {
    if (!kind.empty() && peer.kind != kind) return;
    PeerInfo copy = peer;
    copy.expires_in = expires_in;
    out.push_back(wire::encode(copy));
  });
}

ApiReply Api::list_services(Query& query) {
  const std::string kind = query.text("kind");
  const std::string name = query.text("name");
  return page(query, "services", [&](const PeerInfo& peer, Nanos, std::vector<std::string>& out) {
    for (const ServiceInfo& service : peer.services) {
      if ((!kind.empty() && service.kind != kind) || (!name.empty() && service.name != name)) continue;
      out.push_back(
          wire::encode(ServiceEntry{peer.name, peer.address, peer.instance, peer.incarnation, service}));
    }
  });
}

ApiReply Api::list_regions(Query& query) {
  const std::string owner = query.text("peer");
  const std::string name = query.text("name");
  return page(query, "regions", [&](const PeerInfo& peer, Nanos, std::vector<std::string>& out) {
    if (!owner.empty() && peer.name != owner) return;
    for (const RegionInfo& region : peer.regions) {
      if (!name.empty() && region.name != name) continue;
      out.push_back(
          wire::encode(RegionEntry{peer.name, peer.address, peer.instance, peer.incarnation, region}));
    }
  });
}

ApiReply Api::watch(Query& query) {
  const auto max_ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.watch_wait_max).count();
  const std::string scope = query.name("scope", "default");
  const std::optional<std::uint64_t> since = query.integer("since", limits::kIntegerMax);
  const std::uint64_t wait_ms = query.integer("wait_ms", static_cast<std::uint64_t>(max_ms)).value_or(0);
  if (!since) query.problem("query parameter 'since' is missing; lists and registrations return a revision");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));

  const TimePoint deadline =
      deadline_after(steady_clock().now(), std::chrono::milliseconds(static_cast<std::int64_t>(wait_ms)));
  const auto look = [&] {
    return engine_->read([&](const Registry& registry) { return registry.changes(scope, *since); });
  };
  Lock lock(mutex_);
  std::uint64_t seen = changes_;
  lock.unlock();
  Changes changes = look();
  lock.lock();
  const auto idle = [&] { return !changes.resync && changes.events.empty() && !stopped_; };
  if (wait_ms > 0 && idle()) {
    if (watchers_ >= options_.watchers_max) {
      ApiReply reply = reply_error(
          Status(Code::kResourceExhausted, str(watchers_, " watches are open, the most there may be")),
          "ask without wait_ms, or with heartbeats");
      reply.retry_after = std::chrono::seconds(1);
      return reply;
    }
    ++watchers_;
    while (idle() && changed_.wait_until(lock, deadline, [&] { return stopped_ || changes_ != seen; })) {
      seen = changes_;
      lock.unlock();
      changes = look();
      lock.lock();
    }
    --watchers_;
  }
  if (stopped_) return reply_error(Status(Code::kUnavailable, "nanoctrl is shutting down"));
  return reply_ok(wire::encode(changes));
}

ApiReply Api::get_peer(Query& query, const std::string& name) {
  const std::string scope = query.name("scope", "default");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const auto peer = engine_->read([&](const Registry& registry) { return registry.find(scope, name); });
  if (peer) return reply_ok(wire::encode(*peer));
  return reply_error(Status(Code::kNotFound, str("'", name, "' is not registered in scope '", scope, "'")),
                     "look at the list of peers, and at the scope");
}

ApiReply Api::deregister(Query& query, const std::string& name) {
  const std::string scope = query.name("scope", "default");
  const std::optional<std::uint64_t> incarnation = query.integer("incarnation", limits::kIntegerMax);
  if (!incarnation) query.problem("query parameter 'incarnation' is missing");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Outcome out = engine_->submit(DeregisterCommand{scope, name, *incarnation});
  return out.status.ok() ? reply_ok("{}") : reply_error(std::move(out.status));
}

ApiReply Api::heartbeat(Query& query, const std::string& name, std::string_view body) {
  const std::string scope = query.name("scope", "default");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const Result<wire::HeartbeatRequest> request = wire::decode_heartbeat(body);
  if (!request) return reply_error(request.error());
  Outcome out = engine_->submit(HeartbeatCommand{scope, name, request->incarnation});
  if (!out.status.ok()) return reply_error(std::move(out.status));
  // Without a revision of the client's there is nothing to tell but the current one.
  const std::uint64_t since = request->since.value_or(out.lease.revision);
  return reply_ok(
      wire::encode(engine_->read([&](const Registry& registry) { return registry.changes(scope, since); })));
}

ApiReply Api::update_regions(Query& query, const std::string& name, std::string_view body, bool replace) {
  const std::string scope = query.name("scope", "default");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Result<wire::RegionsRequest> request = wire::decode_regions(body, replace);
  if (!request) return reply_error(request.error());
  return apply_update(UpdateRegionsCommand{scope, name, request->incarnation, replace,
                                           std::move(request->publish), std::move(request->unpublish)});
}

ApiReply Api::update_services(Query& query, const std::string& name, std::string_view body, bool replace) {
  const std::string scope = query.name("scope", "default");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Result<wire::ServicesRequest> request = wire::decode_services(body, replace);
  if (!request) return reply_error(request.error());
  return apply_update(UpdateServicesCommand{scope, name, request->incarnation, replace,
                                            std::move(request->publish), std::move(request->unpublish)});
}

ApiReply Api::apply_update(const Command& command) {
  Outcome out = engine_->submit(command);
  return out.status.ok() ? reply_ok(wire::encode(out.lease)) : reply_error(std::move(out.status));
}

}  // namespace slime::ctrl
