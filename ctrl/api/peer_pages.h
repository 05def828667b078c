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

// The pages of lists: of peers, and of what peers have.
namespace slime::ctrl {

// The parameters of every list with pages.
struct PageQuery {
  std::string scope;
  std::string after;        // the name of the last peer of the page before; empty: the first page
  std::uint64_t limit = 0;  // of peers
};
// Reads them; the sender must be allowed to read the scope. Look at query.finish() afterwards.
PageQuery read_page_query(Query& query);

// Appends the encoded entries that one peer contributes to a list. Called without a lock.
using EncodePeer = std::function<void(const PeerView& peer, std::vector<std::string>& out)>;
// Answers one page of the list `list` over the peers of the query's scope. A page may be empty and have a
// `next`, where many peers contribute nothing. `only`: of that peer alone; empty: of all.
ApiReply peer_page(Context& context, Query& query, std::string_view list, const EncodePeer& encode,
                   const std::string& only = {});

}  // namespace slime::ctrl
