#include "cache/http_server.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "agent/peer_agent.h"
#include "base/address.h"
#include "base/secret.h"
#include "base/str.h"
#include "cache/client.h"
#include "cache/http_directory.h"
#include "cache/server.h"
#include "ctrl/http/front.h"
#include "ctrl/wire/url.h"
#include "rpc/service.h"

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

class HttpServer::Impl {
 public:
  Impl(PeerAgent& agent, const CacheServer& server, HttpOptions options)
      : agent_(agent), server_(server), options_(std::move(options)) {}

  Status open() {
    auto address = Address::parse(options_.listen);
    if (!address) return std::move(address).error().with_context("--http");
    loopback_ = ctrl::is_loopback(address->host);
    ctrl::FrontOptions front{.host = address->host, .port = address->port};
    front.tls = {.certificate = options_.tls_certificate, .key = options_.tls_key};
    SLIME_TRY(check_exposure(front.tls.enabled()));
    // A connection of the agent to itself: the agent has the token, or the keys of its scope.
    auto client = CacheClient::create(agent_, options_.address);
    if (!client) return std::move(client).error();
    client_ = std::make_unique<CacheClient>(std::move(*client));
    directory_ = std::make_unique<HttpDirectory>(*client_, options_.memory_bytes, options_.slab_bytes);
    const bool tls = front.tls.enabled();
    auto bound = ctrl::Front::bind(std::move(front),
                                   [this](const ctrl::ApiRequest& request) { return answer(request); });
    if (!bound) return std::move(bound).error().with_context("--http");
    front_ = std::move(*bound);
    const std::string port = std::to_string(front_->port());
    // Those that are told the URL cannot connect to a wildcard.
    if (address->host == "0.0.0.0" || address->host == "::") {
      const auto reached = Address::parse(options_.address);
      if (reached) address->host = reached->host;
    }
    const bool six = address->host.find(':') != std::string::npos;
    url_ = str(tls ? "https://" : "http://", six ? "[" : "", address->host, six ? "]" : "", ":", port);
    front_->start();
    return {};
  }

  ~Impl() {
    if (front_) front_->stop();
  }

  const std::string& url() const { return url_; }

 private:
  Status check_exposure(bool tls) const {
    if (loopback_ || options_.insecure) return {};
    if (options_.token.empty())
      return {Code::kPermissionDenied, str("--http ", options_.listen,
                                           " is not a loopback address, and there is no token: give "
                                           "--token-file, or --insecure on a trusted "
                                           "network")};
    if (tls) return {};
    return {Code::kPermissionDenied, str("--http ", options_.listen,
                                         " is not a loopback address, and without TLS the network can read "
                                         "the token: give --http-cert and "
                                         "--http-key, or --insecure on a trusted network")};
  }

  // Returns whether a request may be answered.
  Status check(const ctrl::ApiRequest& request) const {
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

  ctrl::ApiReply answer(const ctrl::ApiRequest& request) {
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
    if (path == "/stats") return {.body = stats_text(server_.stats(), options_)};
    if (path == "/peer-agent") return {.body = peer_text(options_)};
    if (path == "/metrics")
      return {.body = metrics_text(server_.stats()), .content_type = "text/plain; version=0.0.4"};
    if (path == "/store") return directory_->store(request.body);
    return path == "/query" ? directory_->query(request.body) : directory_->remove(request.body);
  }

  PeerAgent& agent_;
  const CacheServer& server_;
  const HttpOptions options_;
  bool loopback_ = true;
  std::string url_;
  std::unique_ptr<CacheClient> client_;
  std::unique_ptr<HttpDirectory> directory_;
  std::unique_ptr<ctrl::Front> front_;
};

Result<std::unique_ptr<HttpServer>> HttpServer::start(PeerAgent& agent, const CacheServer& server,
                                                      HttpOptions options) {
  auto impl = std::make_unique<Impl>(agent, server, std::move(options));
  SLIME_TRY(impl->open());
  rpc::Service service("cache.http");
  SLIME_TRY(service.add("url", [url = impl->url()]() -> Result<std::string> { return url; }));
  SLIME_TRY(agent.serve(service));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
std::string HttpServer::url() const { return impl_->url(); }

}  // namespace slime::cache
