#include "cache/http_routes.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/secret.h"
#include "base/str.h"
#include "cache/http_directory.h"
#include "ctrl/wire/url.h"

namespace slime::cache {
namespace {

using HttpJson = nlohmann::ordered_json;

constexpr std::string_view kBearer = "Bearer ";

// The fields of StoreStats that say how things are now. The others count since the start.
constexpr std::array<std::string_view, 10> kGauges = {
    "arena_bytes",  "free_bytes",     "quarantined_bytes", "reserved_bytes", "objects",
    "object_bytes", "pinned_objects", "reservations",      "leases",         "clients"};

std::string metrics_text(const StoreStats& stats) {
  prometheus::Registry registry;
  for_each_field(stats, [&](std::string_view field, std::uint64_t number) {
    const std::string name = str("slime_cache_", field);
    const auto value = static_cast<double>(number);
    const bool gauge =
        field == "expired_leases_held" || std::find(kGauges.begin(), kGauges.end(), field) != kGauges.end();
    const char* help = "See README.md of the cache, and `slime-cache status --json`";
    if (gauge)
      prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({}).Set(value);
    else
      prometheus::BuildCounter().Name(name + "_total").Help(help).Register(registry).Add({}).Increment(value);
  });
  auto& slabs = prometheus::BuildGauge().Name("slime_cache_slabs").Help("Slabs by size").Register(registry);
  for (const ClassStats& size : stats.classes) {
    const auto add = [&](const char* state, std::uint64_t count) {
      slabs.Add({{"bytes", std::to_string(size.slab_bytes)}, {"state", state}})
          .Set(static_cast<double>(count));
    };
    add("used", size.used);
    add("free", size.free);
    add("quarantined", size.quarantined);
  }
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

std::string stats_text(const StoreStats& stats, const HttpOptions& options) {
  const std::uint64_t slabs = options.memory_bytes / options.slab_bytes;
  const std::uint64_t free = stats.free_bytes / options.slab_bytes;
  return HttpJson{{"slab_size", options.slab_bytes},
                  {"memory_size", options.memory_bytes},
                  {"num_slabs", slabs},
                  {"used_slabs", slabs > free ? slabs - free : 0},
                  {"free_slabs", free},
                  {"num_assignment_peers", stats.clients},
                  {"num_assignment_entries", stats.objects},
                  {"num_assignments", stats.objects},
                  {"assignment_bytes", stats.object_bytes}}
      .dump();
}

std::string peer_text(const HttpOptions& options) {
  const HttpJson ctrl = options.ctrl_url.empty() ? HttpJson(nullptr) : HttpJson(options.ctrl_url);
  const HttpJson json{{"peer_agent_id", options.name},
                      {"cache_mr_name", "cache"},
                      {"cache_mr_handle", 0},
                      {"nanoctrl_url", ctrl},
                      {"ctrl", ctrl},
                      {"scope", options.scope},
                      {"address", options.address},
                      {"slab_size", options.slab_bytes},
                      {"memory_size", options.memory_bytes},
                      {"resource", HttpJson::object()}};
  return json.dump(-1, ' ', false, HttpJson::error_handler_t::replace);
}

// Returns the host of a Host header, without the port.
std::string host_alone(std::string_view header) {
  if (header.starts_with('[')) {
    header.remove_prefix(1);
    return std::string(header.substr(0, header.find(']')));
  }
  return std::string(header.substr(0, header.rfind(':')));
}

}  // namespace

HttpRoutes::HttpRoutes(HttpOptions options, bool loopback, std::function<StoreStats()> stats,
                       HttpDirectory& directory)
    : options_(std::move(options)), loopback_(loopback), stats_(std::move(stats)), directory_(directory) {}

// Returns whether a request may be answered.
Status HttpRoutes::check(const ctrl::ApiRequest& request) const {
  if (!options_.token.empty()) {
    const std::string_view given = request.authorization;
    if (!given.starts_with(kBearer) ||
        !(Secret(as_bytes(given.substr(kBearer.size()))) == Secret(as_bytes(options_.token))))
      return {Code::kUnauthenticated, "the cache's token is missing or wrong: Authorization: Bearer TOKEN"};
  }
  // A web page of another machine must not reach a cache that answers without a token.
  if (loopback_ && (!request.origin.empty() || !ctrl::is_loopback(host_alone(request.host))))
    return {Code::kPermissionDenied,
            "this cache answers to localhost, 127.0.0.1 and [::1] only, and no web pages"};
  return {};
}

ctrl::ApiReply HttpRoutes::answer(const ctrl::ApiRequest& request) {
  const std::string_view path = request.target.substr(0, request.target.find('?'));
  const bool health = path == "/healthz";
  if (Status status = health ? Status() : check(request); !status.ok())
    return http_error(status.code() == Code::kUnauthenticated ? 401 : 403, status.text());
  const bool posts = path == "/store" || path == "/query" || path == "/delete";
  const bool gets = health || path == "/stats" || path == "/peer-agent" || path == "/metrics";
  if (!posts && !gets)
    return http_error(404,
                      "the routes are /healthz, /stats, /metrics, /peer-agent, /store, /query and /delete");
  if (request.method != (posts ? "POST" : "GET") && !(gets && request.method == "HEAD")) {
    ctrl::ApiReply refused = http_error(405, "/store, /query and /delete take POST, the other routes GET");
    refused.allow = posts ? "POST" : "GET, HEAD";
    return refused;
  }
  if (health) return {.body = R"({"ok":true})"};
  if (path == "/stats") return {.body = stats_text(stats_(), options_)};
  if (path == "/peer-agent") return {.body = peer_text(options_)};
  if (path == "/metrics")
    return {.body = metrics_text(stats_()), .content_type = "text/plain; version=0.0.4"};
  if (path == "/store") return directory_.store(request.body);
  return path == "/query" ? directory_.query(request.body) : directory_.remove(request.body);
}

}  // namespace slime::cache
