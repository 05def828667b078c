#include <iterator>
#include <map>

#include "ctrl/api_query.h"
#include "ctrl/page.h"
#include "ctrl/store/backup.h"

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
    for (const auto& [name, revision] : registry.revisions()) {
      Metrics::ScopeGauges scope{name, registry.peer_count(name), 0};
      registry.visit(name, {}, [&](const PeerInfo& peer, Nanos) {
        scope.services += peer.services.size();
        return true;
      });
      gauges.scopes.push_back(std::move(scope));
      reports_.visit(name, {}, [&, &in = name](const std::string& peer, std::uint64_t, const Report& report) {
        gauges.agents.push_back({in, peer, report});
        return true;
      });
    }
  });
  gauges.watchers = options_.parked ? options_.parked() : 0;
  gauges.connections = options_.connections ? options_.connections() : 0;
  gauges.refused = options_.refused ? options_.refused() : 0;
  gauges.store_waiting = submitted_;
  gauges.store_writable = engine_->writable().ok();
  gauges.uptime = clock_.now() - started_at_;
  ApiReply reply = reply_ok(metrics_.text(gauges));
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

// The links of a peer are on one page; `limit` counts peers.
ApiReply Api::list_links(Query& query) {
  const std::string scope = query.scope(Role::kRead);
  const std::string after = query.text("after");
  const std::uint64_t limit = query.integer("limit", limits::kPeersPerPage).value_or(limits::kPeersPerPage);
  if (limit == 0) query.problem("query parameter 'limit' is zero");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  // By who has them; what is wanted and what is reported of one are one link.
  std::map<std::string, std::map<std::string, LinkInfo>> links;
  const auto note = [&](const std::string& from, const std::string& to) -> LinkInfo& {
    LinkInfo& link = links[from][to];
    link.from = from;
    link.to = to;
    return link;
  };
  const auto head = engine_->read([&](const Registry& registry) {
    const auto& wanted = registry.links(scope);
    std::uint64_t peers = 0;
    for (auto it = wanted.upper_bound(after); it != wanted.end() && ++peers <= limit + 1; ++it) {
      for (const std::string& target : it->second) note(it->first, target).wanted = true;
    }
    peers = 0;
    reports_.visit(scope, after,
                   [&](const std::string& name, std::uint64_t incarnation, const Report& report) {
                     const std::optional<PeerInfo> peer = registry.find(scope, name);
                     if (!peer || peer->incarnation != incarnation) return true;
                     for (const LinkReport& link : report.links) note(name, link.peer).report = link;
                     return ++peers <= limit;
                   });
    wire::PageHead out{registry.options().epoch, registry.revision(scope), std::nullopt};
    // What was gathered of either is complete up to here.
    while (links.size() > limit) {
      links.erase(std::prev(links.end()));
      out.next = std::prev(links.end())->first;
    }
    for (auto& [from, targets] : links) {
      const bool there = registry.has_peer(scope, from);
      for (auto& [to, link] : targets) link.both_there = there && registry.has_peer(scope, to);
    }
    return out;
  });
  std::vector<std::string> items;
  for (const auto& [from, targets] : links) {
    for (const auto& [to, link] : targets) items.push_back(wire::encode(link));
  }
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
