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

// The pages of lists: of peers, and of their services and regions.
namespace slime::ctrl {

// The parameters of every list with pages.
struct PageQuery {
  std::string scope;
  std::string after;        // last peer name of the page before; empty: the first page
  std::uint64_t limit = 0;  // in peers
};
// Reads the parameters; the sender must have Role::kRead in the scope. Check query.finish()
// afterwards.
PageQuery read_page_query(Query& query);

// Appends one peer's encoded entries of a list. Called without a lock.
using EncodePeer = std::function<void(const PeerView& peer, std::vector<std::string>& out)>;
// Answers one page of `list` over the peers of the query's scope. A page may be empty and have a
// `next`, where many peers contribute nothing. `only`: that peer alone; empty: all peers.
ApiReply peer_page(Context& context, Query& query, std::string_view list, const EncodePeer& encode,
                   const std::string& only = {});

}  // namespace slime::ctrl
