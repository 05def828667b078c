#include "ctrl/api/links.h"

#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctrl/api/peer_pages.h"
#include "ctrl/http/replies.h"
#include "ctrl/limits.h"
#include "ctrl/wire/json_bodies.h"

namespace slime::ctrl {
namespace {

// Counts the peers and links of one page, and determines where the page ends.
class LinkPage {
 public:
  explicit LinkPage(std::uint64_t limit) : left_(limit) {}
  void take(const std::string& name, std::size_t links) {
    --left_;
    links_ += links;
    last_ = name;
  }
  // Returns whether the page is full; then lowers `end` to the last peer taken. Called only when
  // the list has a further peer.
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

using Links = std::map<std::string, std::map<std::string, LinkInfo>>;

LinkInfo& note(Links& links, const std::string& from, const std::string& to) {
  LinkInfo& link = links[from][to];
  link.from = from;
  link.to = to;
  return link;
}

// Builds one page of links, ordered by LinkInfo::from. Merges the wanted links with the links that
// agents report.
class LinkList {
 public:
  LinkList(Context& context, std::string scope, std::string after, std::uint64_t limit)
      : context_(context), scope_(std::move(scope)), after_(std::move(after)), limit_(limit) {}

  ApiReply page() {
    wire::PageHead head = context_.engine().read([&](const Registry& registry) {
      return wire::PageHead{registry.options().epoch, registry.revision(scope_), std::nullopt};
    });
    gather_wanted();
    gather_reported();
    if (end_) links_.erase(links_.upper_bound(*end_), links_.end());
    while (links_.size() > limit_) {
      links_.erase(std::prev(links_.end()));
      end_ = std::prev(links_.end())->first;
    }
    head.next = end_;
    look_for_ends();
    std::vector<std::string> items;
    for (const auto& [from, targets] : links_) {
      for (const auto& [to, link] : targets) items.push_back(wire::encode(link));
    }
    return reply_ok(wire::encode_page("links", items, head));
  }

 private:
  void gather_wanted() {
    LinkPage page(limit_);
    std::string from = after_;
    while (true) {
      const LinkSlice slice = context_.engine().read([&](const Registry& registry) {
        return registry.link_slice(scope_, from, limits::kRecordsPerSlice);
      });
      context_.scans().count(slice.peers.size());
      for (const LinkSlice::Entry& peer : slice.peers) {
        if (page.ends_before_more(end_)) return;
        for (const std::string& target : *peer.targets) note(links_, peer.name, target).wanted = true;
        page.take(peer.name, peer.targets->size());
      }
      if (!slice.next) return;
      from = *slice.next;
    }
  }

  void gather_reported() {
    LinkPage page(limit_);
    const auto take = [&](const Reports::View& agent) {
      if (page.ends_before_more(end_)) return false;
      for (const LinkReport& link : agent.report->links) note(links_, agent.name, link.peer).report = link;
      page.take(agent.name, agent.report->links.size());
      return true;
    };
    const std::optional<std::string> looked =
        context_.scans().visit_reports(scope_, after_, limits::kVisitsPerPage, take);
    if (looked && (!end_ || *looked < *end_)) end_ = looked;
  }

  // Sets LinkInfo::both_there of each link: whether both of its peers are registered.
  void look_for_ends() {
    std::map<std::string_view, bool> there;
    for (const auto& [from, targets] : links_) {
      there.emplace(from, false);
      for (const auto& [to, link] : targets) there.emplace(to, false);
    }
    for (auto it = there.begin(); it != there.end();) {
      std::size_t looks = 0;
      context_.engine().read([&](const Registry& registry) {
        for (; it != there.end() && looks < limits::kRecordsPerSlice; ++it, ++looks)
          it->second = registry.has_peer(scope_, it->first);
      });
      context_.scans().count(looks);
    }
    for (auto& [from, targets] : links_) {
      for (auto& [to, link] : targets) link.both_there = there.at(from) && there.at(to);
    }
  }

  Context& context_;
  const std::string scope_;
  const std::string after_;
  // most peers of one page; all links from one peer are on the same page
  const std::uint64_t limit_;
  Links links_;
  // Name of the last peer for which both wanted and reported links were gathered completely; empty:
  // all of the scope was gathered.
  std::optional<std::string> end_;
};

}  // namespace

ApiReply LinkRoutes::list(const Call& call) {
  const PageQuery page = read_page_query(call.query);
  if (Status status = call.query.finish(); !status.ok()) return reply_error(std::move(status));
  return LinkList(context_, page.scope, page.after, page.limit).page();
}

ApiReply LinkRoutes::get(const Call& call) {
  Query& query = call.query;
  const std::string& name = call.path[2];
  const std::string scope = query.scope(Role::kRead);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const std::shared_ptr<const Registry::Targets> targets =
      context_.engine().look([&](const Registry& registry) { return registry.links(scope, name); });
  return reply_ok(wire::encode_targets(targets == nullptr ? Registry::Targets{} : *targets));
}

ApiReply LinkRoutes::set(const Call& call) {
  Query& query = call.query;
  const std::string& name = call.path[2];
  const std::string scope = query.scope(Role::kJoin);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  Result<wire::LinksRequest> request = wire::decode_links_request(call.request.body);
  if (!request) return reply_error(request.error());
  Outcome out = context_.submit(SetLinksCommand{scope, name, std::move(request->targets),
                                                query.proof_or_admin(request->session, true)});
  return out.status.ok() ? reply_ok("{}") : reply_error(std::move(out.status));
}

}  // namespace slime::ctrl
