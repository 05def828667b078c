#include <iterator>

#include "ctrl/api_query.h"
#include "ctrl/store/backup.h"

// What operators ask: the scopes that there are, and everything at once.
namespace slime::ctrl {

ApiReply Api::metrics(Query& query) {
  query.permit(Role::kRead, "*");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Metrics::Gauges gauges;
  engine_->read([&](const Registry& registry) {
    gauges.record_bytes = registry.record_bytes();
    for (const auto& [name, revision] : registry.revisions()) {
      Metrics::ScopeGauges scope{name, registry.peer_count(name), 0};
      registry.visit(name, {}, [&](const PeerInfo& peer, Nanos) {
        scope.services += peer.services.size();
        return true;
      });
      gauges.scopes.push_back(std::move(scope));
    }
  });
  gauges.watchers = options_.parked ? options_.parked() : 0;
  gauges.connections = options_.connections ? options_.connections() : 0;
  gauges.store_writable = engine_->writable().ok();
  gauges.uptime = clock_.now() - started_at_;
  ApiReply reply = reply_ok(metrics_.text(gauges));
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

// The links of a peer are on one page, so a page may be as long as one peer's links are.
ApiReply Api::list_links(Query& query) {
  const std::string scope = query.scope(Role::kRead);
  const std::string after = query.text("after");
  const std::uint64_t limit = query.integer("limit", limits::kPeersPerPage).value_or(limits::kPeersPerPage);
  if (limit == 0) query.problem("query parameter 'limit' is zero");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  std::vector<std::string> items;
  const auto head = engine_->read([&](const Registry& registry) {
    wire::PageHead out{registry.options().epoch, registry.revision(scope), std::nullopt};
    const auto& links = registry.links(scope);
    std::uint64_t peers = 0;
    for (auto it = links.upper_bound(after); it != links.end(); ++it) {
      const bool there = registry.has_peer(scope, it->first);
      for (const std::string& target : it->second)
        items.push_back(wire::encode(LinkInfo{it->first, target, there && registry.has_peer(scope, target)}));
      if (++peers < limit && items.size() < limits::kLinksPerPage) continue;
      if (std::next(it) != links.end()) out.next = it->first;
      break;
    }
    return out;
  });
  return reply_ok(wire::encode_page("links", items, head));
}

ApiReply Api::list_scopes(Query& query) {
  query.permit_all();
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const Principal& who = query.principal();
  return reply_ok(wire::encode(engine_->read([&](const Registry& registry) {
    std::vector<ScopeInfo> out;
    for (const auto& [name, revision] : registry.revisions()) {
      if (!who.may(Role::kRead, name).ok()) continue;
      ScopeInfo scope{name, revision, 0, 0, 0, registry.links(name).size()};
      registry.visit(name, {}, [&](const PeerInfo& peer, Nanos) {
        ++scope.peers;
        scope.services += peer.services.size();
        scope.regions += peer.regions.size();
        return true;
      });
      out.push_back(std::move(scope));
    }
    return out;
  })));
}

ApiReply Api::backup(Query& query) {
  query.permit(Role::kAdmin, "*");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  // A copy, so that heartbeats do not wait while it becomes text.
  const Registry copy = engine_->read([](const Registry& registry) { return registry; });
  std::string text = encode_backup(copy);
  if (text.size() > limits::kBackupBytes)
    return reply_error(
        Status(Code::kUnavailable, str("the backup has ", text.size(), " bytes, too many for one reply")),
        "stop nanoctrl and copy its store instead");
  return reply_ok(std::move(text));
}

}  // namespace slime::ctrl
