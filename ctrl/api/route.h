#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctrl/api/query.h"
#include "ctrl/http/http.h"

// The one table of all routes, and how a request finds its own.
namespace slime::ctrl {

struct Resources;  // ctrl/api/resources.h

// A request that found its route.
struct Call {
  const ApiRequest& request;
  const std::vector<std::string>& path;  // its parts, decoded
  Query& query;
};

struct Route {
  // kOpen: without a token. kCompat: errors look like NanoCtrl's. kRest: the last part of the path may have
  // slashes. kScan: is_scan().
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
  std::string_view path = "other";  // of few: what metrics have
  bool open = false;
  bool compat = false;
  std::string allowed;  // the methods of the path; empty: there is no such path
};
// Returns the route of a method and a decoded path.
Match match_route(std::string_view method, const std::vector<std::string>& path);

// Whether a request reads much: a list, a backup. Such a request may take milliseconds of a processor.
bool is_scan(std::string_view method, std::string_view target);

}  // namespace slime::ctrl
