#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ctrl/api/context.h"
#include "ctrl/api/query.h"
#include "ctrl/http/http.h"
#include "ctrl/registry/registry.h"

// Answers the paged lists of peers, services and regions.
namespace slime::ctrl {

// The parameters of every list with pages.
struct PageQuery {
  std::string scope;
  std::string after;        // name of the last peer of the previous page; empty: the first page
  std::uint64_t limit = 0;  // in peers
};
// Reads the parameters of a page, and requires Role::kRead in the scope. The caller checks
// query.finish() afterwards.
PageQuery read_page_query(Query& query);

// Appends to `out` the encoded list entries of one peer, such as its services. Called without the
// engine's lock.
using EncodePeer = std::function<void(const PeerView& peer, std::vector<std::string>& out)>;
// Answers one page of `list`, gathered from the peers of the query's scope. A page without entries
// may still have a `next`, if none of the peers examined has an entry. `only`: the name of a single
// peer to examine; empty: all peers.
ApiReply peer_page(Context& context, Query& query, std::string_view list, const EncodePeer& encode,
                   const std::string& only = {});

}  // namespace slime::ctrl
