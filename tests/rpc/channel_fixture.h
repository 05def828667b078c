#pragma once

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/channel.h"
#include "rpc/codec.h"
#include "rpc/server.h"
#include "tests/support/sanitizers.h"
#include "tests/transport/fixture.h"
#include "tests/transport/sim_fixture.h"

namespace slime::rpc::testing {

using transport::testing::Fixture;
using transport::testing::SimFixture;

inline constexpr std::uint64_t kSeed = 20260301;

using test::kSanitized;

// Records what a channel tells its owner.
class Owner final : public ChannelOwner {
 public:
  void on_channel_ready() noexcept override { ++ready; }
  void on_channel_imm(std::uint32_t imm) noexcept override { imms.push_back(imm); }
  void on_channel_writable() noexcept override { ++writable; }
  Result<transport::RegionDescriptor> on_region_lookup(std::string_view name) noexcept override {
    const auto it = regions.find(name);
    if (it == regions.end()) return Status(Code::kNotFound, "no region '" + std::string(name) + "'");
    return it->second;
  }
  void on_region_revoked(std::string_view name) noexcept override { revoked.emplace_back(name); }
  void on_one_way_failed(const Status& status) noexcept override { one_way_failures.push_back(status); }
  void on_channel_closed(const Status& status) noexcept override {
    ++closed;
    reason = status;
  }

  int ready = 0;
  int writable = 0;
  int closed = 0;
  Status reason;
  std::vector<std::uint32_t> imms;
  std::vector<std::string> revoked;
  std::vector<Status> one_way_failures;
  std::map<std::string, transport::RegionDescriptor, std::less<>> regions;
};

// Where one handler leaves its outcome. Lives at one place until then.
template <class T>
class Outcome {
 public:
  Outcome() = default;
  Outcome(const Outcome&) = delete;
  Outcome& operator=(const Outcome&) = delete;
  auto handler() {
    return [this](Result<T> result) {
      ++calls;
      value.emplace(std::move(result));
    };
  }
  // Returns the handler of a receive. It takes the message.
  auto receiver() {
    return [take = handler()](Result<Delivery> delivery) mutable {
      if (delivery) {
        take(delivery->take());
      } else {
        take(std::move(delivery).error());
      }
    };
  }
  [[nodiscard]] bool done() const { return calls > 0; }
  [[nodiscard]] Status status() const { return value->status(); }
  int calls = 0;
  std::optional<Result<T>> value;
};
using Reply = Outcome<Payload>;

class Done {
 public:
  auto handler() {
    return [this](Status s) {
      ++calls;
      status = std::move(s);
    };
  }
  [[nodiscard]] bool done() const { return calls > 0; }
  int calls = 0;
  Status status;
};

template <class T>
T value_of(const Result<Payload>& reply) {
  REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
  auto value = decode_value<T>(reply->bytes());
  REQUIRE_MESSAGE(value.has_value(), value.status().to_string());
  return *value;
}

struct LinkOptions {
  ChannelOptions a{.peer_name = "b"};
  ChannelOptions b{.peer_name = "a"};
  transport::PortOptions port;
  ServerOptions server;
  bool serve = true;  // false: the channels have no server
};
// Few credits, so that frames queue.
inline LinkOptions with_credits(std::uint32_t base, std::uint32_t max) {
  LinkOptions options;
  options.port.base_credits = base;
  options.port.max_credits = max;
  return options;
}

// Two processes with a server each, connected by a channel. Both serve "test", with inline methods.
class Link {
 public:
  explicit Link(Fixture& f, LinkOptions link_options = {}) : fixture(f), options(std::move(link_options)) {
    f.open(options.port);
    for (int side = 0; side < 2; ++side) {
      servers[side] = std::make_unique<Server>(options.server, f.loop(side).clock());
      if (options.serve) add_test_service(side);
    }
    connect();
  }
  ~Link() {
    channels[0].reset();
    channels[1].reset();
    fixture.settle();
  }

  // Makes the channels; again after both were closed.
  void connect() {
    channels[0].reset();
    channels[1].reset();
    auto connected = fixture.connect();
    REQUIRE_MESSAGE(connected.has_value(), connected.status().to_string());
    pair = std::move(*connected);
    for (int side = 0; side < 2; ++side) {
      owners[side] = Owner();
      channels[side] = Channel::create(
          fixture.loop(side), fixture.device(side), std::move(side == 0 ? pair.a : pair.b),
          options.serve ? servers[side].get() : nullptr, owners[side], side == 0 ? options.a : options.b);
    }
    REQUIRE(until([&] { return owners[0].ready == 1 && owners[1].ready == 1; }));
  }

  Channel& a() { return *channels[0]; }
  Channel& b() { return *channels[1]; }
  TimePoint in(Nanos span) { return fixture.now() + span; }
  template <class F>
  bool until(F done) {
    return fixture.until(std::move(done));
  }

  // Calls side 1 from side 0 and waits for the outcome.
  template <class... A>
  Result<Payload> call(std::string_view method, const A&... arguments) {
    return call_raw("test", method, encode_arguments(arguments...));
  }
  Result<Payload> call_raw(std::string_view service, std::string_view method, ByteVector body,
                           Nanos within = std::chrono::seconds(20)) {
    Reply reply;
    a().call({service, method, in(within)}, std::move(body), reply.handler());
    CHECK(!reply.done());
    REQUIRE(until([&] { return reply.done(); }));
    return std::move(*reply.value);
  }

  // ---- what the service does
  std::vector<Request> held;  // requests of "hold", unanswered

  Fixture& fixture;
  LinkOptions options;
  std::array<std::unique_ptr<Server>, 2> servers;
  std::array<Owner, 2> owners;
  transport::testing::Pair pair;
  std::array<std::unique_ptr<Channel>, 2> channels;

 private:
  void add_test_service(int side) {
    Service service("test");
    const MethodOptions inline_run{Run::kInline};
    const auto added = [](const Status& status) { REQUIRE_MESSAGE(status.ok(), status.to_string()); };
    added(service.add(
        "echo", [](ByteVector bytes) { return bytes; }, inline_run));
    added(service.add(
        "add", [](int x, int y) { return x + y; }, inline_run));
    added(service.add(
        "peer", [](const CallInfo& info) { return info.peer; }, inline_run));
    added(service.add(
        "fail", [](int code, std::string text) { return Status(static_cast<Code>(code), std::move(text)); },
        inline_run));
    added(service.add_raw(
        "raw",
        [](Request request) {
          ByteVector body(request.body().begin(), request.body().end());
          request.reply(std::move(body));
        },
        inline_run));
    added(service.add_raw(
        "hold", [this](Request request) { held.push_back(std::move(request)); }, inline_run));
    added(service.add_raw(
        "drop", [](Request request) { request.payload().release(); }, inline_run));
    added(servers[side]->add(service));
  }
};

inline ByteVector pattern(std::size_t size, std::uint64_t seed = kSeed) {
  ByteVector bytes(size);
  Rng rng(seed);
  rng.fill(bytes);
  return bytes;
}

}  // namespace slime::rpc::testing
