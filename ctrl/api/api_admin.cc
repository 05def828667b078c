#include "ctrl/api/api_query.h"
#include "ctrl/api/page.h"

namespace slime::embedded {
std::string_view documents(std::string_view file);  // cmake/embed.cmake
}

// What operators ask: the scopes that there are, everything at once, and how to ask.
namespace slime::ctrl {

ApiReply Api::openapi(Query& query) {
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  return reply_ok(std::string(embedded::documents("openapi.json")));
}

ApiReply Api::page(const Call& call) {
  call.query.permit_all();
  if (Status status = call.query.finish(); !status.ok()) return reply_error(std::move(status));
  return page_reply(call.request, call.path);
}

ApiReply Api::metrics(Query& query) {
  query.permit(Role::kRead, "*");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Metrics::Gauges gauges;
  engine_->read([&](const Registry& registry) {
    gauges.record_bytes = registry.record_bytes();
    gauges.scope_peers_max = registry.options().peers_per_scope_max;
    gauges.scope_record_bytes_max = registry.options().record_bytes_per_scope_max;
    for (const auto& [name, use] : registry.uses())
      gauges.scopes.push_back({name, use.peers, use.services, use.record_bytes});
  });
  for (const Metrics::ScopeGauges& scope : gauges.scopes) {
    visit_reports(scope.scope, {}, [&](const Reports::View& agent) {
      gauges.agents.push_back({scope.scope, agent.name, agent.report});
      return true;
    });
  }
  const Scans::Counts scanned = scans_.counts();
  gauges.records_visited = scanned.records;
  gauges.record_slices = scanned.slices;
  gauges.watchers = options_.parked ? options_.parked() : 0;
  gauges.connections = options_.connections ? options_.connections() : 0;
  gauges.refused = options_.refused ? options_.refused() : 0;
  gauges.store_waiting = submitted_;
  gauges.store_writable = engine_->writable().ok();
  gauges.ready = engine_->ready().ok();
  gauges.uptime = clock_.now() - started_at_;
  ApiReply reply = reply_ok(metrics_.text(gauges));
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

ApiReply Api::list_scopes(Query& query) {
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const Principal& who = query.principal();
  std::vector<ScopeInfo> out;
  engine_->read([&](const Registry& registry) {
    const RegistryOptions& limits = registry.options();
    for (const auto& [name, use] : registry.uses()) {
      if (!who.may(Role::kRead, name).ok()) continue;
      out.push_back({name, use.revision, use.peers, use.services, use.regions, use.links, use.record_bytes,
                     limits.peers_per_scope_max, limits.record_bytes_per_scope_max});
    }
  });
  return reply_ok(wire::encode(out));
}

ApiReply Api::backup(Query& query) {
  const std::string after = query.text("after");
  query.permit(Role::kAdmin, "*");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  if (query.has("after")) {
    Result<std::string> page = backups_.next(after, clock_.now());
    return page ? reply_ok(std::move(*page)) : reply_error(page.error(), "begin again, without 'after'");
  }
  Result<std::string> page = backups_.first(
      [this] { return engine_->read([](const Registry& registry) { return registry.state(); }); },
      clock_.now());
  if (page) return reply_ok(std::move(*page));
  ApiReply reply = reply_error(page.error(), "try again when that one is done");
  reply.retry_after = limits::kBackupIdle;
  return reply;
}

}  // namespace slime::ctrl
