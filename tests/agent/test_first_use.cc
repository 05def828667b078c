// Memory is registered with a device at the first connection over it. The agents have verbs, on a
// fabric of the test's own, and tcp.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/agent_impl.h"
#include "agent/limits.h"
#include "agent/memory/devices.h"
#include "agent/memory/first_use.h"
#include "agent/memory/region.h"
#include "base/reaper.h"
#include "base/str.h"
#include "tests/agent/agents.h"
#include "tests/transport/verbs/fake_fabric.h"
#include "transport/connect.h"
#include "transport/verbs/options.h"
#include "transport/verbs/verbs_provider.h"

namespace slime::first_use_test {
namespace {

using namespace slime::test;
using transport::testing::FakeFabric;
using transport::testing::FakeOptions;

constexpr std::size_t kBytes = 4096;

FakeOptions pumped() {
  FakeOptions out = FakeOptions::roce(3);
  out.pump_thread = true;  // the agents' loops sleep
  return out;
}

transport::ProviderEntry verbs_on(FakeFabric& fabric, int device) {
  return {"verbs", [&fabric, device](const auto&) {
            transport::verbs::Options options;
            options.device = str("fake", device);
            return transport::verbs::make_verbs_provider(fabric.functions(), options);
          }};
}

std::vector<transport::ProviderEntry> verbs_and_tcp(FakeFabric& fabric, int device) {
  std::vector<transport::ProviderEntry> table{verbs_on(fabric, device)};
  for (const transport::ProviderEntry& entry : transport::provider_table()) {
    if (entry.name == "tcp") table.push_back(entry);
  }
  return table;
}

std::unique_ptr<PeerAgent> start_on(FakeFabric& fabric, int device, std::string name) {
  return take(PeerAgentImpl::start({.name = std::move(name)}, verbs_and_tcp(fabric, device)));
}

std::unique_ptr<PeerAgent> start_on_tcp(std::string name) {
  return take(PeerAgent::start({.name = std::move(name), .provider = "tcp"}));
}

std::string provider_of(const Peer& peer) { return peer.info().provider; }

// Finishes a handshake over verbs, as every agent does, and then does nothing: a peer that hangs.
// The destructor ends the connection without a goodbye, as a peer that dies.
class SilentPeer {
 public:
  SilentPeer(FakeFabric& fabric, int device, const PeerAgent& agent)
      : device_(take(verbs_on(fabric, device).make({})->open_device())),
        loop_(take(transport::Loop::create())),
        port_(take(device_->open_port(*loop_))) {
    loop_->start_thread();
    transport::HandshakeOptions options;
    options.self = {"silent", InstanceId::random()};
    options.provider = "verbs";
    loop_->run([&] {
      connecting_ = transport::connect(*loop_, *port_, agent.address(), {}, std::move(options),
                                       [this](Result<transport::Connected> made) {
                                         if (made) connected_.emplace(std::move(*made));
                                       });
    });
  }
  ~SilentPeer() {
    loop_->run([this] {
      connecting_.reset();
      connected_.reset();
      port_.reset();
    });
  }

 private:
  std::unique_ptr<transport::Device> device_;
  std::shared_ptr<transport::Loop> loop_;
  std::unique_ptr<transport::Port> port_;
  std::unique_ptr<transport::Connecting> connecting_;
  std::optional<transport::Connected> connected_;
};

bool awaits_connections(const PeerAgent& agent, std::size_t count, Nanos bound = kSoon) {
  return eventually([&] { return agent.info().connections == count; }, bound);
}

// A server on fake0 with a published region, and a client on fake1 that has not connected yet.
struct Two {
  explicit Two(FakeOptions options = pumped()) : fabric(std::move(options)) {
    server = start_on(fabric, 0, "server");
    rpc::Service service = calculator();
    REQUIRE(server->serve(service).ok());
    client = start_on(fabric, 1, "client");
    weights = take(server->allocate(kBytes, Rights::kReadWrite));
    std::memset(weights.data(), 7, kBytes);
    REQUIRE(server->publish("weights", weights).ok());
  }

  [[nodiscard]] int registrations(const MemoryRegion& region) const {
    return fabric.registrations(region.data());
  }
  // Waits until a registration has begun, which the test holds.
  void await_held() {
    REQUIRE(eventually([this] { return fabric.held_calls() > 0; }));
  }

  FakeFabric fabric;  // outlives the agents
  std::unique_ptr<PeerAgent> server;
  std::unique_ptr<PeerAgent> client;
  MemoryRegion weights;
};

TEST_CASE("a region is registered with a device once, when the first peer connects over the device") {
  Two two;
  auto over_tcp = start_on_tcp("over-tcp");
  Peer slow = over_tcp->peer(two.server->address());
  REQUIRE(slow.region("weights", kSoon).has_value());
  CHECK(provider_of(slow) == "tcp");
  CHECK(two.registrations(two.weights) == 0);

  Peer peer = two.client->peer(two.server->address());
  REQUIRE(peer.region("weights", kSoon).has_value());
  CHECK(provider_of(peer) == "verbs");
  CHECK(two.registrations(two.weights) == 1);

  auto third = start_on(two.fabric, 2, "third");
  REQUIRE(third->peer(two.server->address()).connect().wait(kSoon).has_value());
  CHECK(two.registrations(two.weights) == 1);
  // The device is in use: memory is registered with it at once from now on.
  auto more = take(two.server->allocate(kBytes, Rights::kReadWrite));
  CHECK(two.registrations(more) == 1);
}

TEST_CASE("a transfer works at once on the first connection of both agents over a device") {
  Two two;
  auto mine = take(two.client->allocate(kBytes, Rights::kLocal));
  CHECK(two.registrations(mine) == 0);
  Peer peer = two.client->peer(two.server->address());
  const RemoteRegion remote = take(peer.region("weights", kSoon));
  CHECK(provider_of(peer) == "verbs");
  const Copy copy{mine, 0, remote, 0, kBytes};
  REQUIRE(peer.read({&copy, 1}).wait(kSoon).has_value());
  CHECK(std::memcmp(mine.data(), two.weights.data(), kBytes) == 0);
  std::memset(mine.data(), 9, kBytes);
  REQUIRE(peer.write({&copy, 1}).wait(kSoon).has_value());
  CHECK(std::memcmp(mine.data(), two.weights.data(), kBytes) == 0);
}

TEST_CASE("an agent may be the first peer of itself over a device") {
  Two two;
  Peer self = two.server->peer(two.server->address());
  const RemoteRegion remote = take(self.region("weights", kSoon));
  CHECK(provider_of(self) == "verbs");
  CHECK(take(self.fetch_add(remote, 0, 1).wait(kSoon)) == 0x0707070707070707);
}

TEST_CASE("while regions are registered the loop serves other peers, and the first peer waits") {
  Two two;
  auto over_tcp = start_on_tcp("over-tcp");
  Peer other = over_tcp->peer(two.server->address());
  REQUIRE(other.connect().wait(kSoon).has_value());
  two.fabric.hold_registration(two.weights.data());
  Peer peer = two.client->peer(two.server->address());
  Future<RemoteRegion> first = peer.lookup_region("weights");
  two.await_held();
  for (std::int64_t i = 0; i < 20; ++i)
    CHECK(take(other.call<std::int64_t>("calc", "add", i, 1).wait(kSoon)) == i + 1);
  // The first peer is connected, since the server lives; its requests wait.
  REQUIRE(peer.connect().wait(kSoon).has_value());
  Future<std::int64_t> sum = peer.call<std::int64_t>("calc", "add", 1, 2);
  CHECK_FALSE(sum.wait_done(milliseconds(20)));
  CHECK_FALSE(first.done());
  CHECK(two.fabric.held_calls() == 1);
  // Memory that is made meanwhile is registered by the thread that makes it.
  auto more = take(two.server->allocate(kBytes, Rights::kReadWrite));
  CHECK(two.registrations(more) == 1);
  CHECK(two.registrations(two.weights) == 0);
  two.fabric.hold_registration(nullptr);
  CHECK(first.wait(kSoon).has_value());
  CHECK(take(sum.wait(kSoon)) == 3);
  CHECK(provider_of(peer) == "verbs");
  CHECK(two.registrations(two.weights) == 1);
  CHECK(two.registrations(more) == 1);
}

TEST_CASE("an agent that registers its regions uses the connection only after that") {
  Two two;
  auto mine = take(two.client->allocate(kBytes, Rights::kLocal));
  two.fabric.hold_registration(mine.data());
  Peer peer = two.client->peer(two.server->address());
  Future<None> connected = peer.connect();
  two.await_held();
  CHECK_FALSE(connected.wait_done(milliseconds(20)));
  CHECK(awaits_connections(*two.server, 1));
  two.fabric.hold_registration(nullptr);
  REQUIRE(connected.wait(kSoon).has_value());
  const RemoteRegion remote = take(peer.region("weights", kSoon));
  const Copy copy{mine, 0, remote, 0, kBytes};
  CHECK(peer.read({&copy, 1}).wait(kSoon).has_value());
}

TEST_CASE("a peer that hangs after the handshake is given up as soon as over other devices") {
  Two two;
  const TimePoint begun = steady_clock().now();
  const SilentPeer silent(two.fabric, 2, *two.server);
  REQUIRE(awaits_connections(*two.server, 1));
  REQUIRE(awaits_connections(*two.server, 0, patient(seconds(20))));
  CHECK(steady_clock().now() - begun >= agent::limits::kReadyTimeout);
}

TEST_CASE("a peer that dies while regions are registered for its connection is noticed at once") {
  Two two;
  two.fabric.hold_registration(two.weights.data());
  {
    const SilentPeer peer(two.fabric, 2, *two.server);
    two.await_held();
    REQUIRE(awaits_connections(*two.server, 1));
  }
  REQUIRE(awaits_connections(*two.server, 0, patient(seconds(4))));  // before it is given up
  CHECK(two.fabric.held_calls() == 1);
  two.fabric.hold_registration(nullptr);
  Peer next = two.client->peer(two.server->address());
  CHECK(next.region("weights", kSoon).has_value());
  CHECK(provider_of(next) == "verbs");
  CHECK(two.registrations(two.weights) == 1);
}

// A region that waits for verbs, and a loop without a thread, which the test drives.
struct Alone {
  Alone() { regions.add(region); }

  std::shared_ptr<agent::FirstUse> first_use(agent::FirstUse::StartThread start) {
    return std::make_shared<agent::FirstUse>(*loop, *devices, regions, start);
  }
  void use(agent::FirstUse& first) {
    loop->run([&] { first.use(verbs, [this] { ++ready; }); });
  }
  [[nodiscard]] int registrations() const { return fabric.registrations(region->registrations.data()); }

  FakeFabric fabric{FakeOptions::roce(1)};
  std::shared_ptr<agent::Devices> devices = take(agent::Devices::open("auto", verbs_and_tcp(fabric, 0)));
  std::size_t verbs = *devices->find("verbs");
  agent::RegionTable regions;
  agent::RegionState region = std::make_shared<MemoryRegion::State>(
      devices, std::weak_ptr<agent::RegionOwner>(),
      take(devices->allocate(kBytes, Rights::kReadWrite, MemoryKind::kHost)));
  std::shared_ptr<transport::Loop> loop = take(transport::Loop::create());
  int ready = 0;
};

bool start_at_the_third_attempt(Task& task) {
  static int attempts = 0;
  return ++attempts >= 3 && try_reap(task);
}

TEST_CASE("if no thread can be started, the loop tries again later, and registers nothing itself") {
  Alone alone;
  const auto first = alone.first_use(start_at_the_third_attempt);
  alone.use(*first);
  alone.use(*first);  // a second connection waits, too
  CHECK(alone.registrations() == 0);
  CHECK(alone.ready == 0);
  REQUIRE(eventually([&] { return alone.loop->poll(milliseconds(1)), alone.ready == 2; }));
  CHECK(alone.registrations() == 1);
  CHECK(alone.region->registrations.missing(alone.verbs).ok());
  alone.use(*first);  // nothing waits for the device any more
  CHECK(alone.ready == 3);
  CHECK(alone.registrations() == 1);
}

TEST_CASE("the attempts to start a thread end when the agent closes") {
  Alone alone;
  const auto first = alone.first_use([](Task&) { return false; });
  alone.use(*first);
  CHECK(alone.loop->next_timer() != kNever);
  alone.loop->run([&] { first->close(); });
  CHECK(eventually([&] { return alone.loop->poll(milliseconds(1)), alone.loop->next_timer() == kNever; }));
  CHECK(alone.ready == 0);
  CHECK(alone.registrations() == 0);
}

TEST_CASE("a region that was closed before is not registered, and holds nothing up") {
  Alone alone;
  const auto first = alone.first_use(try_reap);
  REQUIRE(alone.region->close(seconds(1)).ok());
  alone.use(*first);
  REQUIRE(eventually([&] { return alone.loop->poll(milliseconds(1)), alone.ready == 1; }));
  CHECK(alone.registrations() == 0);
  CHECK(alone.region->registrations.missing(alone.verbs).code() == Code::kUnavailable);
}

TEST_CASE("a region that is closed while it is registered is gone, and the connection is used") {
  Two two;
  two.fabric.hold_registration(two.weights.data());
  Peer peer = two.client->peer(two.server->address());
  Future<RemoteRegion> gone = peer.lookup_region("weights");
  two.await_held();
  std::thread closing([&] { CHECK(two.weights.close().ok()); });
  REQUIRE(eventually(
      [&] { return two.server->publish("weights", two.weights).code() == Code::kInvalidArgument; }));
  CHECK(two.fabric.held_calls() == 1);
  two.fabric.hold_registration(nullptr);
  closing.join();
  CHECK(code_of(gone.wait(kSoon)) == Code::kNotFound);
  CHECK(provider_of(peer) == "verbs");
  CHECK(two.registrations(two.weights) == 0);
  auto next = take(two.server->allocate(kBytes, Rights::kReadWrite));
  REQUIRE(two.server->publish("next", next).ok());
  CHECK(peer.region("next", kSoon).has_value());
}

TEST_CASE("a device that fails while regions are registered has them once it is opened again") {
  Two two;
  two.fabric.hold_registration(two.weights.data());
  Future<RemoteRegion> first = two.client->peer(two.server->address()).lookup_region("weights", kSoon);
  two.await_held();
  two.fabric.kill("fake0");
  two.fabric.hold_registration(nullptr);
  CHECK(first.wait_done(2 * kSoon));  // with an error, or over tcp
  two.fabric.revive("fake0");
  REQUIRE(eventually([&] {
    const auto next = start_on(two.fabric, 2, "next");
    Peer peer = next->peer(two.server->address());
    return peer.region("weights", kSoon).has_value() && provider_of(peer) == "verbs";
  }));
  CHECK(two.registrations(two.weights) == 1);
}

TEST_CASE("an agent may be closed while its regions are registered") {
  Two two;
  two.fabric.hold_registration(two.weights.data());
  Future<None> connected = two.client->peer(two.server->address()).connect();
  two.await_held();
  std::thread closing([&] { two.server->close().ignore(); });
  REQUIRE(eventually([&] { return two.server->unpublish("nothing").code() == Code::kUnavailable; }));
  CHECK(two.fabric.held_calls() == 1);
  two.fabric.hold_registration(nullptr);
  closing.join();
  two.client->close().ignore();
  CHECK(connected.done());
}

TEST_CASE("closing an agent drops the registrations that have not begun") {
  Two two;
  std::vector<MemoryRegion> more;
  for (int i = 0; i < 32; ++i) more.push_back(take(two.server->allocate(kBytes, Rights::kReadWrite)));
  // The regions are registered in an order that the test does not know: some come before `weights`.
  const auto registered = [&] {
    int out = 0;
    for (const MemoryRegion& region : more) out += two.registrations(region);
    return out;
  };
  two.fabric.hold_registration(two.weights.data());
  Future<None> connected = two.client->peer(two.server->address()).connect();
  two.await_held();
  const int before = registered();
  std::thread closing([&] { two.server->close().ignore(); });
  REQUIRE(eventually([&] { return two.server->unpublish("nothing").code() == Code::kUnavailable; }));
  REQUIRE(eventually([&] { return two.server->info().connections == 0; }));
  two.fabric.hold_registration(nullptr);
  closing.join();
  CHECK(registered() <= before);
  two.client->close().ignore();
}

TEST_CASE("a region of the owner that the device refuses is an error of its own uses alone") {
  Two two;
  two.fabric.refuse_registration(two.weights.data());
  Peer peer = two.client->peer(two.server->address());
  const auto refused = peer.region("weights", kSoon);
  CHECK(provider_of(peer) == "verbs");
  CHECK(code_of(refused) == Code::kResourceExhausted);
  CHECK(refused.status().text().find("not registered with verbs") != std::string::npos);
  CHECK(take(peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  auto later = take(two.server->allocate(kBytes, Rights::kReadWrite));
  REQUIRE(two.server->publish("later", later).ok());
  CHECK(peer.region("later", kSoon).has_value());
  auto over_tcp = start_on_tcp("over-tcp");
  CHECK(over_tcp->peer(two.server->address()).region("weights", kSoon).has_value());
}

TEST_CASE("a region of the initiator that the device refuses is an error of its own uses alone") {
  Two two;
  REQUIRE(two.weights.close().ok());  // only the client has a region when it connects
  auto refused = take(two.client->allocate(kBytes, Rights::kLocal));
  two.fabric.refuse_registration(refused.data());
  Peer peer = two.client->peer(two.server->address());
  REQUIRE(peer.connect().wait(kSoon).has_value());
  auto theirs = take(two.server->allocate(kBytes, Rights::kReadWrite));
  REQUIRE(two.server->publish("theirs", theirs).ok());
  const RemoteRegion remote = take(peer.region("theirs", kSoon));
  const Copy cannot{refused, 0, remote, 0, kBytes};
  const auto failed = peer.read({&cannot, 1}).wait(kSoon);
  CHECK(code_of(failed) == Code::kResourceExhausted);
  CHECK(failed.status().text().find("not registered with verbs") != std::string::npos);
  auto fits = take(two.client->allocate(kBytes, Rights::kLocal));
  const Copy can{fits, 0, remote, 0, kBytes};
  CHECK(peer.read({&can, 1}).wait(kSoon).has_value());
}

TEST_CASE("memory that no other device takes is registered at once") {
  FakeFabric fabric(FakeOptions::roce(1));
  const std::vector<transport::ProviderEntry> table{verbs_on(fabric, 0)};
  const auto devices = take(agent::Devices::open("auto", table));
  std::vector<std::byte> bytes(kBytes);
  auto region =
      take(devices->register_memory(bytes.data(), bytes.size(), Rights::kReadWrite, MemoryKind::kHost));
  CHECK(region.missing(0).ok());
  auto made = take(devices->allocate(kBytes, Rights::kReadWrite, MemoryKind::kHost));
  CHECK(made.missing(0).ok());
}

}  // namespace
}  // namespace slime::first_use_test
