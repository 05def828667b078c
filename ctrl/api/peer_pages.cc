#include "ctrl/api/peer_pages.h"

#include <utility>

#include "ctrl/http/replies.h"
#include "ctrl/limits.h"
#include "ctrl/wire/json_bodies.h"

namespace slime::ctrl {

PageQuery read_page_query(Query& query) {
  PageQuery out;
  out.scope = query.scope(Role::kRead);
  out.after = query.text("after");
  out.limit = query.integer("limit", limits::kPeersPerPage).value_or(limits::kPeersPerPage);
  if (out.limit == 0) query.problem("query parameter 'limit' is zero");
  return out;
}

ApiReply peer_page(Context& context, Query& query, std::string_view list, const EncodePeer& encode,
                   const std::string& only) {
  const PageQuery page = read_page_query(query);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));

  std::vector<std::string> items;
  std::uint64_t peers = 0;
  std::size_t bytes = 0;
  const auto take = [&](const PeerView& peer) {
    // Skips a peer of an earlier page; happens if `only` names one peer.
    if (peer.info->name <= page.after) return true;
    const std::size_t before = items.size();
    encode(peer, items);
    if (items.size() == before) return true;
    for (std::size_t i = before; i < items.size(); ++i) bytes += items[i].size();
    return ++peers < page.limit && bytes < limits::kPageBytes;
  };
  Scans& scans = context.scans();
  ScanHead seen =
      only.empty() ? scans.visit(page.scope, page.after, {}, take) : scans.visit_one(page.scope, only, take);
  return reply_ok(wire::encode_page(list, items, {seen.server_epoch, seen.revision, std::move(seen.next)}));
}

}  // namespace slime::ctrl
