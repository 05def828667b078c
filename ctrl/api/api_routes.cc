#include <algorithm>
#include <utility>

#include "ctrl/api/api_query.h"

// Which routes there are, and how a request finds its own.
namespace slime::ctrl {
namespace {

// A browser sends other types across origins without asking first: a page that somebody visits must not
// register peers on their machine.
bool json_type(std::string_view type) {
  constexpr std::string_view kJson = "application/json";
  return type.starts_with(kJson) &&
         (type.size() == kJson.size() || type[kJson.size()] == ';' || type[kJson.size()] == ' ');
}

// The next part of a route's path, without its slash.
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

}  // namespace

// Names in a path are checked before the handler sees them.
const std::vector<Api::Route>& Api::table() {
  static const std::vector<Route> kTable = [] {
    constexpr unsigned kNone = Route::kNone;
    constexpr unsigned kScan = Route::kScan;
    std::vector<Route> out = {
        {"GET", "/healthz", Route::kOpen, [](Api& api, const Call& c) { return api.health(c.query); }},
        {"GET", "/readyz", Route::kOpen, [](Api& api, const Call& c) { return api.readiness(c.query); }},
        {"GET", "/v1/openapi.json", Route::kOpen, [](Api&, const Call& c) { return openapi(c.query); }},
        {"GET", "/ui", Route::kOpen, [](Api&, const Call& c) { return page(c); }},
        {"GET", "/ui/{file}", Route::kOpen, [](Api&, const Call& c) { return page(c); }},
        {"GET", "/metrics", kScan, [](Api& api, const Call& c) { return api.metrics(c.query); }},
        {"GET", "/v1/peers", kScan, [](Api& api, const Call& c) { return api.list_peers(c.query); }},
        {"POST", "/v1/peers", kNone,
         [](Api& api, const Call& c) { return api.register_peer(c.query, c.request.body); }},
        {"GET", "/v1/peers/{name}", kNone,
         [](Api& api, const Call& c) { return api.get_peer(c.query, c.path[2]); }},
        {"DELETE", "/v1/peers/{name}", kNone,
         [](Api& api, const Call& c) { return api.deregister(c.query, c.path[2], c.request.session); }},
        {"POST", "/v1/peers/{name}/heartbeat", kNone,
         [](Api& api, const Call& c) { return api.heartbeat(c.query, c.path[2], c.request.body); }},
        {"GET", "/v1/peers/{name}/links", kNone,
         [](Api& api, const Call& c) { return api.get_links(c.query, c.path[2]); }},
        {"PUT", "/v1/peers/{name}/links", kNone,
         [](Api& api, const Call& c) { return api.set_links(c.query, c.path[2], c.request.body); }},
        {"POST", "/v1/peers/{name}/regions", kNone,
         [](Api& api, const Call& c) {
           return api.update_regions(c.query, c.path[2], c.request.body, false);
         }},
        {"PUT", "/v1/peers/{name}/regions", kNone,
         [](Api& api, const Call& c) {
           return api.update_regions(c.query, c.path[2], c.request.body, true);
         }},
        {"POST", "/v1/peers/{name}/services", kNone,
         [](Api& api, const Call& c) {
           return api.update_services(c.query, c.path[2], c.request.body, false);
         }},
        {"PUT", "/v1/peers/{name}/services", kNone,
         [](Api& api, const Call& c) {
           return api.update_services(c.query, c.path[2], c.request.body, true);
         }},
        {"POST", "/v1/heartbeats", kNone,
         [](Api& api, const Call& c) { return api.heartbeats(c.query, c.request.body); }},
        {"GET", "/v1/services", kScan, [](Api& api, const Call& c) { return api.list_services(c.query); }},
        {"GET", "/v1/regions", kScan, [](Api& api, const Call& c) { return api.list_regions(c.query); }},
        {"GET", "/v1/links", kScan, [](Api& api, const Call& c) { return api.list_links(c.query); }},
        {"GET", "/v1/watch", kNone,
         [](Api& api, const Call& c) { return api.watch(c.query, c.request.answer_now); }},
        {"GET", "/v1/tokens", kScan, [](Api& api, const Call& c) { return api.list_tokens(c.query); }},
        {"POST", "/v1/tokens", kNone,
         [](Api& api, const Call& c) { return api.create_token(c.query, c.request.body); }},
        {"DELETE", "/v1/tokens/{id}", kNone,
         [](Api& api, const Call& c) { return api.revoke_token(c.query, c.path[2]); }},
        {"GET", "/v1/scopes", kScan, [](Api& api, const Call& c) { return api.list_scopes(c.query); }},
        {"GET", "/v1/backup", kScan, [](Api& api, const Call& c) { return api.backup(c.query); }},
        {"GET", "/v1/status", kNone, [](Api& api, const Call& c) { return api.server_status(c.query); }},
    };
    const std::vector<Route> compat = compat_routes();
    out.insert(out.end(), compat.begin(), compat.end());
    return out;
  }();
  return kTable;
}

std::vector<Api::RouteName> Api::routes() {
  std::vector<RouteName> out;
  for (const Route& route : table()) out.push_back({route.method, route.path});
  return out;
}

Api::Match Api::match(std::string_view method, const std::vector<std::string>& path) {
  if (method == "HEAD") method = "GET";
  Match out;
  for (const Route& route : table()) {
    if (!is_of(route.path, (route.traits & Route::kRest) != 0, path)) continue;
    out.path = route.path;
    out.open = (route.traits & Route::kOpen) != 0;
    out.compat = (route.traits & Route::kCompat) != 0;
    out.allowed += str(out.allowed.empty() ? "" : ", ", route.method);
    if (route.method == method) out.route = &route;
  }
  return out;
}

bool Api::is_scan(std::string_view method, std::string_view target) {
  // Of each request, and before a thread has it, so not by way of match(): none of these paths has names.
  static const std::vector<RouteName> kScans = [] {
    std::vector<RouteName> out;
    for (const Route& route : table()) {
      if ((route.traits & Route::kScan) != 0) out.push_back({route.method, route.path});
    }
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
                     [&](const RouteName& one) { return one.method == method && one.path == path; });
}

ApiReply Api::route(const Call& call, const Match& match) {
  if (match.allowed.empty()) return no_route();
  if (match.route == nullptr) return wrong_method(call.request.method, match.allowed);
  const bool body = match.route->method == "POST" || match.route->method == "PUT";
  if (body && !json_type(call.request.content_type))
    return error(415, Code::kInvalidArgument, "the body is not declared as JSON",
                 "send the header Content-Type: application/json");
  if (match.path.starts_with("/v1/peers/{name}")) {
    if (Status status = check_name("name", call.path[2]); !status.ok()) return reply_error(std::move(status));
  }
  return match.route->handle(*this, call);
}

}  // namespace slime::ctrl
