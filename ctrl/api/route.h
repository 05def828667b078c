#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctrl/api/query.h"
#include "ctrl/http/http.h"

// The table of all routes, and the function that finds the route of a request.
namespace slime::ctrl {

struct Resources;  // ctrl/api/resources.h

// A request with its matched route's parameters.
struct Call {
  const ApiRequest& request;
  const std::vector<std::string>& path;  // parts of the path, decoded
  Query& query;
};

struct Route {
  // kOpen: the route needs no token. kCompat: errors have the form of DLSlime's NanoCtrl. kRest:
  // the last part of the path may contain slashes. kScan: is_scan() returns true for the route.
  enum Traits : unsigned { kNone = 0, kOpen = 1, kCompat = 2, kRest = 4, kScan = 8 };

  std::string_view method;
  // the pattern, such as "/v1/peers/{name}"; a part in braces matches any text
  std::string_view path;
  unsigned traits = kNone;
  ApiReply (*handle)(Resources& resources, const Call& call) = nullptr;
};

// Returns all routes. A route with the method GET also answers HEAD.
const std::vector<Route>& all_routes();

struct Match {
  const Route* route = nullptr;     // null: no route matches the path and the method
  std::string_view path = "other";  // the route's pattern, for metrics
  bool open = false;
  bool compat = false;
  // the methods that the path supports, "GET, PUT"; empty: no route has this path
  std::string allowed;
};
// Finds the route for a method and a path, given as its decoded parts.
Match match_route(std::string_view method, const std::vector<std::string>& path);

// Returns whether the request reads many records, as lists and backups do, and so may use several
// milliseconds of processor time.
bool is_scan(std::string_view method, std::string_view target);

}  // namespace slime::ctrl
