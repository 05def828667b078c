#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "ctrl/api/api_query.h"

// GET /v1/links: what is wanted of the peers of a scope, and what they report. And the reports for it.
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

using Links = std::map<std::string, std::map<std::string, LinkInfo>>;

LinkInfo& note(Links& links, const std::string& from, const std::string& to) {
  LinkInfo& link = links[from][to];
  link.from = from;
  link.to = to;
  return link;
}

}  // namespace

std::optional<std::string> Api::visit_reports(const std::string& scope, std::string after,
                                              const ReportVisitor& visitor, std::size_t budget) {
  while (true) {
    const Reports::Slice slice = reports_.slice(scope, after, std::min(limits::kRecordsPerSlice, budget));
    // An agent that is gone, or another one of its name, has none.
    std::vector<bool> current;
    engine_->read([&](const Registry& registry) {
      for (const Reports::View& agent : slice.reports)
        current.push_back(registry.incarnation(scope, agent.name) == agent.incarnation);
    });
    scans_.count(slice.reports.size());
    for (std::size_t i = 0; i < slice.reports.size(); ++i) {
      if (current[i] && !visitor(slice.reports[i])) return std::nullopt;
    }
    if (!slice.more) return std::nullopt;
    after = slice.reports.back().name;
    budget -= slice.reports.size();
    if (budget == 0) return after;
  }
}

// Gathers a page of links by who has them; what is wanted and what is reported of one are one link.
class Api::LinkList {
 public:
  LinkList(Api& api, std::string scope, std::string after, std::uint64_t limit)
      : api_(api), scope_(std::move(scope)), after_(std::move(after)), limit_(limit) {}

  ApiReply page() {
    wire::PageHead head = api_.engine_->read([&](const Registry& registry) {
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
      const LinkSlice slice = api_.engine_->read([&](const Registry& registry) {
        return registry.link_slice(scope_, from, limits::kRecordsPerSlice);
      });
      api_.scans_.count(slice.peers.size());
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
        api_.visit_reports(scope_, after_, take, limits::kVisitsPerPage);
    if (looked && (!end_ || *looked < *end_)) end_ = looked;
  }

  // Whether both peers of each link are there.
  void look_for_ends() {
    std::map<std::string_view, bool> there;
    for (const auto& [from, targets] : links_) {
      there.emplace(from, false);
      for (const auto& [to, link] : targets) there.emplace(to, false);
    }
    for (auto it = there.begin(); it != there.end();) {
      std::size_t looks = 0;
      api_.engine_->read([&](const Registry& registry) {
        for (; it != there.end() && looks < limits::kRecordsPerSlice; ++it, ++looks)
          it->second = registry.has_peer(scope_, it->first);
      });
      api_.scans_.count(looks);
    }
    for (auto& [from, targets] : links_) {
      for (auto& [to, link] : targets) link.both_there = there.at(from) && there.at(to);
    }
  }

  Api& api_;
  const std::string scope_;
  const std::string after_;
  const std::uint64_t limit_;  // of peers; the links of one are on one page
  Links links_;
  // What was gathered of wanted links and of reported ones is complete up to the lesser end.
  std::optional<std::string> end_;
};

ApiReply Api::list_links(Query& query) {
  const std::string scope = query.scope(Role::kRead);
  const std::string after = query.text("after");
  const std::uint64_t limit = query.integer("limit", limits::kPeersPerPage).value_or(limits::kPeersPerPage);
  if (limit == 0) query.problem("query parameter 'limit' is zero");
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  return LinkList(*this, scope, after, limit).page();
}

}  // namespace slime::ctrl
