#include "ctrl/api/route.h"

#include <algorithm>
#include <optional>

#include "base/str.h"
#include "ctrl/api/resources.h"
#include "ctrl/limits.h"
#include "ctrl/wire/url.h"

namespace slime::ctrl {
namespace {

// Removes the first "/part" from `path` and returns the part without the slash.
std::string_view next_part(std::string_view& path) {
  path.remove_prefix(1);
  const std::string_view out = path.substr(0, path.find('/'));
  path.remove_prefix(out.size());
  return out;
}

bool is_of(std::string_view pattern, bool rest, const std::vector<std::string>& path) {
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (pattern.empty()) return rest;
    const std::string_view part = next_part(pattern);
    if (!part.starts_with('{') && part != path[i]) return false;
  }
  return pattern.empty();
}

// Handler of a route in the table: calls the member function kFunction of the member kResource of
// `resources`.
template <auto kResource, auto kFunction>
ApiReply to(Resources& resources, const Call& call) {
  return (resources.*kResource.*kFunction)(call);
}

std::vector<Route> own_routes() {
  using R = Resources;
  constexpr unsigned kNone = Route::kNone;
  constexpr unsigned kOpen = Route::kOpen;
  constexpr unsigned kScan = Route::kScan;
  return {
      {"GET", "/healthz", kOpen, to<&R::admin, &AdminRoutes::health>},
      {"GET", "/readyz", kOpen, to<&R::admin, &AdminRoutes::readiness>},
      {"GET", "/v1/openapi.json", kOpen, to<&R::admin, &AdminRoutes::openapi>},
      {"GET", "/ui", kOpen, to<&R::admin, &AdminRoutes::page>},
      {"GET", "/ui/{file}", kOpen, to<&R::admin, &AdminRoutes::page>},
      {"GET", "/metrics", kScan, to<&R::admin, &AdminRoutes::metrics>},
      {"GET", "/v1/peers", kScan, to<&R::peers, &PeerRoutes::list>},
      {"POST", "/v1/peers", kNone, to<&R::peers, &PeerRoutes::add>},
      {"GET", "/v1/peers/{name}", kNone, to<&R::peers, &PeerRoutes::get>},
      {"DELETE", "/v1/peers/{name}", kNone, to<&R::peers, &PeerRoutes::remove>},
      {"POST", "/v1/peers/{name}/heartbeat", kNone, to<&R::peers, &PeerRoutes::heartbeat>},
      {"GET", "/v1/peers/{name}/links", kNone, to<&R::links, &LinkRoutes::get>},
      {"PUT", "/v1/peers/{name}/links", kNone, to<&R::links, &LinkRoutes::set>},
      {"POST", "/v1/peers/{name}/regions", kNone, to<&R::regions, &RegionRoutes::update>},
      {"PUT", "/v1/peers/{name}/regions", kNone, to<&R::regions, &RegionRoutes::update>},
      {"POST", "/v1/peers/{name}/services", kNone, to<&R::services, &ServiceRoutes::update>},
      {"PUT", "/v1/peers/{name}/services", kNone, to<&R::services, &ServiceRoutes::update>},
      {"POST", "/v1/heartbeats", kNone, to<&R::peers, &PeerRoutes::heartbeats>},
      {"GET", "/v1/services", kScan, to<&R::services, &ServiceRoutes::list>},
      {"GET", "/v1/regions", kScan, to<&R::regions, &RegionRoutes::list>},
      {"GET", "/v1/links", kScan, to<&R::links, &LinkRoutes::list>},
      {"GET", "/v1/watch", kNone, to<&R::peers, &PeerRoutes::watch>},
      {"GET", "/v1/tokens", kScan, to<&R::tokens, &TokenRoutes::list>},
      {"POST", "/v1/tokens", kNone, to<&R::tokens, &TokenRoutes::create>},
      {"DELETE", "/v1/tokens/{id}", kNone, to<&R::tokens, &TokenRoutes::revoke>},
      {"GET", "/v1/scopes", kScan, to<&R::admin, &AdminRoutes::scopes>},
      {"GET", "/v1/backup", kScan, to<&R::admin, &AdminRoutes::backup>},
      {"GET", "/v1/status", kNone, to<&R::admin, &AdminRoutes::status>},
  };
}

// The routes of DLSlime's NanoCtrl.
std::vector<Route> compat_routes() {
  using R = Resources;
  constexpr unsigned kCompat = Route::kCompat;
  constexpr unsigned kCompatScan = Route::kCompat | Route::kScan;
  return {
      {"GET", "/", kCompat | Route::kOpen, to<&R::compat, &CompatRoutes::root>},
      {"POST", "/start_peer_agent", kCompat, to<&R::compat, &CompatRoutes::start_agent>},
      {"POST", "/query", kCompatScan, to<&R::compat, &CompatRoutes::list_agents>},
      {"POST", "/cleanup", kCompat, to<&R::compat, &CompatRoutes::cleanup>},
      {"POST", "/register_mr", kCompat, to<&R::compat, &CompatRoutes::register_region>},
      {"POST", "/get_mr_info", kCompat, to<&R::compat, &CompatRoutes::get_region>},
      {"POST", "/register", kCompat, to<&R::compat, &CompatRoutes::register_entity>},
      {"POST", "/unregister", kCompat, to<&R::compat, &CompatRoutes::unregister>},
      {"POST", "/heartbeat", kCompat, to<&R::compat, &CompatRoutes::heartbeat>},
      {"POST", "/get_entity_info", kCompat, to<&R::compat, &CompatRoutes::get_entity>},
      {"POST", "/list_entities", kCompatScan, to<&R::compat, &CompatRoutes::list_entities>},
      {"POST", "/get_redis_address", kCompat, to<&R::compat, &CompatRoutes::redis_address>},
      {"POST", "/v1/desired_topology/{agent_id}", kCompat | Route::kRest,
       to<&R::compat, &CompatRoutes::set_desired_topology>},
  };
}

}  // namespace

const std::vector<Route>& all_routes() {
  static const std::vector<Route> kRoutes = [] {
    std::vector<Route> out = own_routes();
    const std::vector<Route> compat = compat_routes();
    out.insert(out.end(), compat.begin(), compat.end());
    return out;
  }();
  return kRoutes;
}

Match match_route(std::string_view method, const std::vector<std::string>& path) {
  if (method == "HEAD") method = "GET";
  Match out;
  for (const Route& route : all_routes()) {
    if (!is_of(route.path, (route.traits & Route::kRest) != 0, path)) continue;
    out.path = route.path;
    out.open = (route.traits & Route::kOpen) != 0;
    out.compat = (route.traits & Route::kCompat) != 0;
    out.allowed += str(out.allowed.empty() ? "" : ", ", route.method);
    if (route.method == method) out.route = &route;
  }
  return out;
}

bool is_scan(std::string_view method, std::string_view target) {
  // Avoids match_route(), because this function runs for every request before it is queued. A plain
  // comparison is enough: no path of a kScan route contains a name.
  static const std::vector<Route> kScans = [] {
    std::vector<Route> out = all_routes();
    std::erase_if(out, [](const Route& route) { return (route.traits & Route::kScan) == 0; });
    return out;
  }();
  std::string_view path = target.substr(0, std::min(target.find_first_of("?#"), limits::kPathBytes));
  std::string decoded;
  if (path.find('%') != std::string_view::npos) {
    const std::optional<Target> parsed = parse_target(path);
    if (!parsed) return false;
    for (const std::string& part : parsed->path) decoded += str("/", part);
    path = decoded;
  }
  if (method == "HEAD") method = "GET";
  return std::any_of(kScans.begin(), kScans.end(),
                     [&](const Route& route) { return route.method == method && route.path == path; });
}

}  // namespace slime::ctrl
