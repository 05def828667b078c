#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctrl/api/query.h"
#include "ctrl/http/http.h"

// The table of all routes, and the match of a request to its route.
namespace slime::ctrl {

struct Resources;  // ctrl/api/resources.h

// A request with its matched route's parameters.
struct Call {
  const ApiRequest& request;
  const std::vector<std::string>& path;  // parts of the path, decoded
  Query& query;
};

struct Route {
  // kOpen: needs no token. kCompat: errors look like NanoCtrl's. kRest: the last part of the path
  // may contain slashes. kScan: is_scan().
  enum Traits : unsigned { kNone = 0, kOpen = 1, kCompat = 2, kRest = 4, kScan = 8 };

  std::string_view method;
  std::string_view path;  // a part in braces stands for any name: "/v1/peers/{name}"
  unsigned traits = kNone;
  ApiReply (*handle)(Resources& resources, const Call& call) = nullptr;
};

// All routes. A route with GET answers HEAD too.
const std::vector<Route>& all_routes();

struct Match {
  const Route* route = nullptr;     // null: no route has this method, or this path
  std::string_view path = "other";  // the route's pattern, for metrics
  bool open = false;
  bool compat = false;
  std::string allowed;  // methods of the path; empty: the path does not exist
};
// Returns the route of a method and a decoded path.
Match match_route(std::string_view method, const std::vector<std::string>& path);

// Returns whether a request reads many records (a list, a backup) and may use milliseconds of a
// processor.
bool is_scan(std::string_view method, std::string_view target);

}  // namespace slime::ctrl
