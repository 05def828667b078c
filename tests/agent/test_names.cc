#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/agent/agents.h"
#include "transport/connect.h"
#include "transport/provider.h"

namespace slime {
namespace {

using namespace test;

// Connects and accepts under any name. An agent refuses to start with a wrong one.
class Named final : private transport::Acceptor {
 public:
  explicit Named(const std::string& name)
      : device_(take(take(transport::make_provider(endpoint_provider()))->open_device())),
        loop_(take(transport::Loop::create())),
        port_(take(device_->open_port(*loop_))) {
    options_.self = {name, InstanceId::random()};
    options_.provider = endpoint_provider();
    loop_->start_thread();
    loop_->run([&] {
      listener_ = take(transport::Listener::listen(*loop_, *port_, "127.0.0.1:0", false, options_, *this));
    });
  }
  ~Named() {
    loop_->run([this] {
      listener_.reset();
      connecting_.reset();
      accepted_.reset();
      port_.reset();
    });
  }
  [[nodiscard]] std::string address() const { return listener_->address(); }

  // Returns the outcome of a handshake with the agent.
  Status connect(const PeerAgent& agent) {
    std::promise<Status> made;
    loop_->run([&] {
      connecting_ = transport::connect(
          *loop_, *port_, agent.address(), {}, options_,
          [&made](const Result<transport::Connected>& result) { made.set_value(result.status()); });
    });
    Status out = made.get_future().get();
    loop_->run([this] { connecting_.reset(); });
    return out;
  }

 private:
  Status on_hello(const transport::PeerIdentity&) noexcept override { return {}; }
  void on_connected(transport::Connected connected) noexcept override {
    accepted_.emplace(std::move(connected));
  }

  std::unique_ptr<transport::Device> device_;
  std::shared_ptr<transport::Loop> loop_;
  std::unique_ptr<transport::Port> port_;
  transport::HandshakeOptions options_;
  std::unique_ptr<transport::Listener> listener_;
  std::unique_ptr<transport::Connecting> connecting_;
  std::optional<transport::Connected> accepted_;
};

constexpr const char* kAddresses[] = {"127.0.0.1:80", "10.0.0.7:4000", "[::1]:4000", "localhost:80"};

std::string refused(std::string_view what, std::string_view name) {
  return std::string(what) + " \"" + std::string(name) + "\" would be taken for an address";
}

TEST_CASE("an agent takes in no peer whose name is an address, and tells it why") {
  const auto agent = start("a");
  for (const std::string name : kAddresses) {
    CAPTURE(name);
    // Brackets are no part of any name.
    const std::string why = name[0] == '[' ? "peer name has the character '['" : refused("peer name", name);
    const Status status = Named(name).connect(*agent);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK_MESSAGE(status.text().find(why) != std::string::npos, status.text());
  }
  for (const char* name : {"worker:0", "worker:80", "node7.example:4000", "127.0.0.1:0"}) {
    CAPTURE(name);
    CHECK(Named(name).connect(*agent).to_string() == "ok");
  }
}

TEST_CASE("an agent does not use a peer that it has connected to and whose name is another address") {
  const auto agent = start("a");
  const Named other("127.0.0.1:80");
  const auto sent = agent->peer(other.address()).send(1, as_bytes("x")).wait(kSoon);
  CHECK(code_of(sent) == Code::kInvalidArgument);
  CHECK_MESSAGE(sent.status().text().find(refused("peer name", "127.0.0.1:80")) != std::string::npos,
                sent.status().text());
}

TEST_CASE("an agent cannot be given the name of an address") {
  for (const std::string name : kAddresses) {
    PeerAgentOptions options;
    options.name = name;
    CHECK(code_of(PeerAgent::start(std::move(options))) == Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace slime
