#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "rpc/channel/completions.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/turn.h"
#include "rpc/server/budget.h"
#include "tests/rpc/channel_fixture.h"

namespace slime::rpc::testing {

// What a part of a channel stands on: a connection over the endpoint of side 0, whose peer records
// what comes, completions, and turns that are counted. Destroys the endpoint before the parts, as a
// channel does: declare the parts after it, and call finish() at the end of a test that has sent
// something.
class PartsBase final : public TurnHost, private DeliverySource {
 public:
  explicit PartsBase(Fixture& f, ChannelOptions options = {.peer_name = "peer"},
                     transport::PortOptions port = {})
      : fixture(f) {
    f.open(port);
    auto connected = f.connect();
    REQUIRE_MESSAGE(connected.has_value(), connected.status().to_string());
    peer = std::move(connected->b);
    peer->set_receiver(received);
    connection =
        std::make_unique<Connection>(f.loop(0), f.device(0), std::move(connected->a), std::move(options));
    connection->endpoint().set_receiver(own);
    account = std::make_shared<Account>(connection->options().memory_bytes);
  }
  ~PartsBase() { finish(); }
  void finish() {
    if (peer == nullptr) return;
    connection->end(Status(Code::kUnavailable, "the test is over"));
    connection->destroy_endpoint();
    peer.reset();
    fixture.settle();
  }

  void begin_turn() noexcept override { ++turns; }
  void end_turn(bool from_loop) noexcept override { CHECK(from_loop); }

  // The peer says which features it has.
  void greet(std::uint64_t features = wire::kOptionalFeatures) {
    wire::Hello hello{.max_requests = 100, .max_payload_bytes = 1 << 20};
    hello.optional_features = features;
    connection->greet(hello);
  }
  // Calls the handlers that wait.
  void complete_all() {
    while (!completions.empty()) completions.run_first();
  }
  // The n-th frame that the peer got.
  wire::Frame frame(std::size_t n) {
    REQUIRE(fixture.until([&] { return received.messages.size() > n; }));
    auto frame = wire::decode_frame(received.messages[n]);
    REQUIRE(frame.has_value());
    return *frame;
  }

  struct GivenBack {
    std::uint64_t tag;
    std::uint64_t number;
    Payload message;
  };

  Fixture& fixture;
  transport::testing::Recorder received;  // of the peer
  transport::testing::Recorder own;
  std::unique_ptr<transport::Endpoint> peer;
  std::unique_ptr<Connection> connection;
  std::shared_ptr<Account> account;
  std::vector<GivenBack> given_back;
  Completions completions{std::shared_ptr<DeliverySource>(std::shared_ptr<void>(), this)};
  int turns = 0;

 private:
  void give_back(std::uint64_t tag, std::uint64_t number, Payload&& message) noexcept override {
    given_back.push_back({tag, number, std::move(message)});
  }
};

}  // namespace slime::rpc::testing
