#include "cache/http_server.h"

#include <utility>

#include "agent/peer_agent.h"
#include "base/address.h"
#include "base/str.h"
#include "cache/client.h"
#include "cache/http_directory.h"
#include "cache/http_routes.h"
#include "cache/server.h"
#include "ctrl/http/front.h"
#include "ctrl/wire/url.h"
#include "rpc/service.h"

namespace slime::cache {
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
    objects_ = http_objects(*client_);
    directory_ = std::make_unique<HttpDirectory>(*objects_, options_.memory_bytes, options_.slab_bytes);
    routes_ = std::make_unique<HttpRoutes>(
        options_, loopback_, [this] { return server_.stats(); }, *directory_);
    const bool tls = front.tls.enabled();
    auto bound = ctrl::Front::bind(
        std::move(front), [this](const ctrl::ApiRequest& request) { return routes_->answer(request); });
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

  PeerAgent& agent_;
  const CacheServer& server_;
  const HttpOptions options_;
  bool loopback_ = true;
  std::string url_;
  std::unique_ptr<CacheClient> client_;
  std::unique_ptr<HttpObjects> objects_;
  std::unique_ptr<HttpDirectory> directory_;
  std::unique_ptr<HttpRoutes> routes_;
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
