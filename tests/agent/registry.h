#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ctrl/client.h"
#include "ctrl/server.h"
#include "tests/agent/agents.h"

namespace slime::test {

// nanoctrl in this process; restart() gives an empty one at the same URL.
class Registry {
 public:
  explicit Registry(Nanos ttl = seconds(15), ctrl::ApiOptions api = {}) : ttl_(ttl), api_(std::move(api)) {
    start();
  }
  void start() {
    ctrl::ServerOptions options;
    options.port = port_;
    options.threads = 8;
    options.registry.ttl = ttl_;
    options.api = api_;
    options.registry.epoch = ctrl::wall_clock_epoch();
    REQUIRE(eventually([&] {
      auto bound = ctrl::Server::bind(options);
      if (bound) server_ = std::move(*bound);
      return server_ != nullptr;
    }));
    port_ = server_->port();
    url_ = server_->url();
    REQUIRE(server_->start().ok());
  }
  void stop() { server_.reset(); }
  const std::string& url() const { return url_; }
  ctrl::Api& api() { return server_->api(); }
  std::unique_ptr<ctrl::Client> client(std::string token = {}) const {
    ctrl::ClientOptions options;
    options.url = url_;
    options.token = std::move(token);
    return take(ctrl::Client::create(options));
  }

 private:
  const Nanos ttl_;
  const ctrl::ApiOptions api_;
  std::uint16_t port_ = 0;
  std::string url_;
  std::unique_ptr<ctrl::Server> server_;
};

inline PeerAgentOptions options_for(const Registry& registry, std::string name) {
  PeerAgentOptions options;
  options.name = std::move(name);
  options.provider = provider();
  options.ctrl_url = registry.url();
  options.heartbeat = milliseconds(100);
  return options;
}

inline std::unique_ptr<PeerAgent> start_calculator(const Registry& registry, std::string name) {
  auto agent = test::start(options_for(registry, std::move(name)));
  rpc::Service service = calculator();
  REQUIRE(agent->serve(service).ok());
  return agent;
}

}  // namespace slime::test
