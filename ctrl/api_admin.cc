#include <iterator>
#include <map>

#include "ctrl/api_query.h"
#include "ctrl/page.h"

namespace slime::embedded {
std::string_view documents(std::string_view file);  // cmake/embed.cmake
}

// What operators ask: the scopes that there are, everything at once, and how to ask.
namespace slime::ctrl {

namespace {

// How much of one list is on a page of links.
class LinkPage {
 public:
  explicit LinkPage(std::uint64_t limit) : left_(limit) {}
  void take(const std::string& name, std::size_t links) {
    --left_;
    links_ += links;
    last_ = name;
  }
  // There is one more. When it has no room, the page ends with the last, or earlier if `end` does.
  bool ends_before_more(std::optional<std::string>& end) const {
    if (left_ > 0 && links_ < limits::kLinksPerPage) return false;
    if (!end || last_ < *end) end = last_;
    return true;
  }

 private:
  std::uint64_t left_;
  std::size_t links_ = 0;
  std::string last_;
};

}  // namespace

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
      reports_.visit(
          name, {},
          [&, &in = name](const std::string& peer, std::uint64_t incarnation, const Report& report) {
            if (registry.incarnation(in, peer) == incarnation) gauges.agents.push_back({in, peer, report});
            return true;
          });
    }
  });
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
    // What was gathered of wanted links and of reported ones is complete up to the lesser end.
    std::optional<std::string> end;
    LinkPage page(limit);
    for (auto it = wanted.upper_bound(after); it != wanted.end(); ++it) {
      if (page.ends_before_more(end)) break;
      for (const std::string& target : it->second) note(it->first, target).wanted = true;
      page.take(it->first, it->second.size());
    }
    page = LinkPage(limit);
    reports_.visit(scope, after,
                   [&](const std::string& name, std::uint64_t incarnation, const Report& report) {
                     // An agent that is gone, or another one of its name, has none.
                     if (registry.incarnation(scope, name) != incarnation) return true;
                     if (page.ends_before_more(end)) return false;
                     for (const LinkReport& link : report.links) note(name, link.peer).report = link;
                     page.take(name, report.links.size());
                     return true;
                   });
    wire::PageHead out{registry.options().epoch, registry.revision(scope), std::nullopt};
    if (end) links.erase(links.upper_bound(*end), links.end());
    while (links.size() > limit) {
      links.erase(std::prev(links.end()));
      end = std::prev(links.end())->first;
    }
    out.next = end;
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
