#include "ctrl/api/admin.h"

#include <string>
#include <utility>
#include <vector>

#include "ctrl/api/page.h"
#include "ctrl/http/replies.h"
#include "ctrl/limits.h"
#include "ctrl/wire/json_bodies.h"

namespace slime::embedded {
std::string_view documents(std::string_view file);  // cmake/embed.cmake
}

namespace slime::ctrl {

ApiReply AdminRoutes::health(const Call& call) {
  Query& query = call.query;
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  return reply_ok(wire::encode_member("status", "ok"));
}

// Answers GET /readyz. The route needs no token, so the reply does not describe the store's
// problem; the log does.
ApiReply AdminRoutes::readiness(const Call& call) {
  Query& query = call.query;
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  if (context_.engine().ready().ok()) return reply_ok(wire::encode_member("status", "ready"));
  return reply_error(Status(Code::kUnavailable, "the store cannot be written: changes are refused"),
                     "nanoctrl's log says why; heartbeats and queries go on");
}

ApiReply AdminRoutes::status(const Call& call) {
  Query& query = call.query;
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  ServerStatus out;
  out.version = SLIME_VERSION;
  out.uptime = context_.clock().now() - context_.started_at();
  out.watchers = context_.options().parked ? context_.options().parked() : 0;
  return context_.engine().read([&](const Registry& registry) {
    out.server_epoch = registry.options().epoch;
    out.ttl = registry.options().ttl;
    // A token of one scope gets only the numbers of that scope.
    const Principal& principal = query.principal();
    out.scopes = principal.everywhere() ? registry.scope_count() : 1;
    out.peers = principal.everywhere() ? registry.peer_count() : registry.peer_count(principal.scope);
    return reply_ok(wire::encode(out, registry.record_bytes()));
  });
}

ApiReply AdminRoutes::openapi(const Call& call) {
  Query& query = call.query;
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  return reply_ok(std::string(embedded::documents("openapi.json")));
}

ApiReply AdminRoutes::page(const Call& call) {
  call.query.permit_all();
  if (Status status = call.query.finish(); !status.ok()) return reply_error(std::move(status));
  return page_reply(call.request, call.path);
}

ApiReply AdminRoutes::metrics(const Call& call) {
  Query& query = call.query;
  query.permit(Role::kRead, "*");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Metrics::Gauges gauges;
  context_.engine().read([&](const Registry& registry) {
    gauges.record_bytes = registry.record_bytes();
    gauges.scope_peers_max = registry.options().peers_per_scope_max;
    gauges.scope_record_bytes_max = registry.options().record_bytes_per_scope_max;
    for (const auto& [name, use] : registry.uses())
      gauges.scopes.push_back({name, use.peers, use.services, use.record_bytes});
  });
  for (const Metrics::ScopeGauges& scope : gauges.scopes) {
    context_.scans().visit_reports(scope.scope, {}, kAllRecords.records, [&](const Reports::View& agent) {
      gauges.agents.push_back({scope.scope, agent.name, agent.report});
      return true;
    });
  }
  const Scans::Counts scanned = context_.scans().counts();
  gauges.records_visited = scanned.records;
  gauges.record_slices = scanned.slices;
  gauges.watchers = context_.options().parked ? context_.options().parked() : 0;
  gauges.connections = context_.options().connections ? context_.options().connections() : 0;
  gauges.refused = context_.options().refused ? context_.options().refused() : 0;
  gauges.store_waiting = context_.submitted();
  gauges.store_writable = context_.engine().writable().ok();
  gauges.ready = context_.engine().ready().ok();
  gauges.uptime = context_.clock().now() - context_.started_at();
  ApiReply reply = reply_ok(context_.metrics().text(gauges));
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

ApiReply AdminRoutes::scopes(const Call& call) {
  Query& query = call.query;
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const Principal& principal = query.principal();
  std::vector<ScopeInfo> out;
  context_.engine().read([&](const Registry& registry) {
    const RegistryOptions& limits = registry.options();
    for (const auto& [name, use] : registry.uses()) {
      if (!principal.may(Role::kRead, name).ok()) continue;
      out.push_back({name, use.revision, use.peers, use.services, use.regions, use.links, use.record_bytes,
                     limits.peers_per_scope_max, limits.record_bytes_per_scope_max});
    }
  });
  return reply_ok(wire::encode(out));
}

ApiReply AdminRoutes::backup(const Call& call) {
  Query& query = call.query;
  const std::string after = query.text("after");
  query.permit(Role::kAdmin, "*");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  if (query.has("after")) {
    Result<std::string> page = backups_.next(after, context_.clock().now());
    return page ? reply_ok(std::move(*page)) : reply_error(page.error(), "begin again, without 'after'");
  }
  Result<std::string> page = backups_.first(
      [this] { return context_.engine().read([](const Registry& registry) { return registry.state(); }); },
      context_.clock().now());
  if (page) return reply_ok(std::move(*page));
  ApiReply reply = reply_error(page.error(), "try again when that one is done");
  reply.retry_after = limits::kBackupIdle;
  return reply;
}

}  // namespace slime::ctrl
