// Agents that choose a provider for each peer, and agents that are pinned to one.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "agent/connecting/avoided.h"
#include "agent/dump.h"
#include "agent/memory/devices.h"
#include "agent/memory/registrations.h"
#include "base/str.h"
#include "tests/agent/agents.h"
#include "tests/transport/toy/toy_provider.h"
#include "tests/transport/verbs/fake_fabric.h"
#include "transport/verbs/options.h"
#include "transport/verbs/verbs_provider.h"

namespace slime::choice_test {
namespace {

using namespace slime::test;

// Not start(): these are about which provider it is.
std::unique_ptr<PeerAgent> start_on(std::string provider, std::string name) {
  auto agent = PeerAgent::start({.name = std::move(name), .provider = std::move(provider)});
  REQUIRE_MESSAGE(agent.has_value(), agent.status().to_string());
  return std::move(*agent);
}

bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

void write_number(const MemoryRegion& region, std::uint64_t value) {
  std::memcpy(region.data(), &value, sizeof value);
}
std::uint64_t read_number(const MemoryRegion& region) {
  std::uint64_t out = 0;
  std::memcpy(&out, region.data(), sizeof out);
  return out;
}

TEST_CASE("agents of one user on one host share memory, and both say so") {
  auto a = start_on("auto", "a");
  auto b = start_on("auto", "b");
  Peer peer = a->peer(b->address());
  REQUIRE(peer.connect().wait(kSoon).has_value());
  CHECK(contains(to_json(peer.info()), R"("provider":"shm","reason":"same host and user)"));
  // The other side knows it by its name.
  REQUIRE(b->peer("a").connect().wait(kSoon).has_value());
  CHECK(contains(to_json(b->peer("a").info()), R"("provider":"shm","reason":"same host and user")"));
  CHECK(contains(to_json(a->info()), R"("provider":"auto","reason":"auto: shm, )"));
  CHECK(contains(dump(), "provider shm, reason same host and user"));
  // Without a connection there is no choice.
  CHECK(contains(to_json(a->peer("127.0.0.1:1").info()), R"("provider":"","reason":"")"));
}

TEST_CASE("a peer that is pinned gets what it is pinned to, and both say why") {
  for (const char* name : {"tcp", "shm"}) {
    CAPTURE(name);
    auto choosing = start_on("auto", "choosing");
    auto pinned = start_on(name, "pinned");
    SUBCASE("it is connected to") {
      Peer peer = choosing->peer(pinned->address());
      REQUIRE(peer.connect().wait(kSoon).has_value());
      const std::string provider = str("\"provider\":\"", name, "\"");
      CHECK(contains(to_json(peer.info()), provider));
      if (std::string(name) == "tcp") CHECK(contains(to_json(peer.info()), "'pinned' has no shm"));
    }
    SUBCASE("it connects") {
      Peer peer = pinned->peer(choosing->address());
      REQUIRE(peer.connect().wait(kSoon).has_value());
      CHECK(contains(to_json(peer.info()),
                     str("\"provider\":\"", name, "\",\"reason\":\"the only one that 'pinned' offers\"")));
    }
  }
}

TEST_CASE("a pinned provider that a peer does not have is an error with what both have") {
  auto a = start_on("shm", "a");
  auto b = start_on("tcp", "b");
  for (const auto& [from, to, text] :
       {std::tuple(a.get(), b.get(), "'a', which connects, offers shm, 'b' has tcp: 'b' has no shm"),
        std::tuple(b.get(), a.get(), "'b', which connects, offers tcp, 'a' has shm: 'a' has no tcp")}) {
    const auto connected = from->peer(to->address()).connect().wait(kSoon);
    CHECK(code_of(connected) == Code::kUnimplemented);
    CAPTURE(connected.status().text());
    CHECK(contains(connected.status().text(), text));
  }
}

TEST_CASE("one agent serves peers on several providers at once, from the same memory") {
  auto server = start_on("auto", "server");
  rpc::Service service = calculator();
  REQUIRE(server->serve(service).ok());
  auto theirs = take(server->allocate(4096, Rights::kReadWrite));
  std::vector<std::uint64_t> foreign(512);
  auto registered = take(server->register_memory(foreign.data(), 4096, Rights::kReadWrite));
  REQUIRE(server->publish("allocated", theirs).ok());
  REQUIRE(server->publish("registered", registered).ok());
  auto over_tcp = start_on("tcp", "over-tcp");
  auto over_shm = start_on("auto", "over-shm");
  std::uint64_t value = 1;
  for (const char* region : {"allocated", "registered"}) {
    for (PeerAgent* client : {over_tcp.get(), over_shm.get()}) {
      CAPTURE(client->name());
      Peer peer = client->peer(server->address());
      CHECK(take(peer.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
      auto mine = take(client->allocate(4096, Rights::kLocal));
      const RemoteRegion remote = take(peer.region(region, kSoon));
      const Copy copy{mine, 0, remote, 0, 8};
      write_number(mine, ++value);
      REQUIRE(peer.write({&copy, 1}).wait(kSoon).has_value());
      write_number(mine, 0);
      REQUIRE(peer.read({&copy, 1}).wait(kSoon).has_value());
      CHECK(read_number(mine) == value);
      CHECK(read_number(std::string(region) == "allocated" ? theirs : registered) == value);
    }
  }
  CHECK(contains(to_json(server->peer("over-tcp").info()), R"("provider":"tcp")"));
  CHECK(contains(to_json(server->peer("over-shm").info()), R"("provider":"shm")"));
  CHECK(number_in(to_json(server->info()), "connections") == 2);
}

TEST_CASE("one piece of memory is the local side of operations with peers on several providers") {
  auto client = start_on("auto", "client");
  auto on_tcp = start_on("tcp", "on-tcp");
  auto on_shm = start_on("shm", "on-shm");
  auto mine = take(client->allocate(16, Rights::kLocal));
  std::uint64_t value = 100;
  for (int round = 0; round < 2; ++round) {
    for (PeerAgent* owner : {on_tcp.get(), on_shm.get()}) {
      auto theirs = take(owner->allocate(16, Rights::kReadWrite));
      write_number(theirs, ++value);
      const std::string name = str("region-", value);
      REQUIRE(owner->publish(name, theirs).ok());
      Peer peer = client->peer(owner->address());
      const RemoteRegion remote = take(peer.region(name, kSoon));
      const Copy copy{mine, 8, remote, 0, 8};
      REQUIRE(peer.read({&copy, 1}).wait(kSoon).has_value());
      std::uint64_t got = 0;
      std::memcpy(&got, mine.data() + 8, sizeof got);
      CHECK(got == value);
      CHECK(take(peer.fetch_add(remote, 0, 5).wait(kSoon)) == value);
      CHECK(read_number(theirs) == value + 5);
    }
  }
}

TEST_CASE("atomics of peers on shared memory and on tcp exclude each other") {
  auto owner = start_on("auto", "owner");
  auto theirs = take(owner->allocate(8, Rights::kReadWrite));
  REQUIRE(owner->publish("counter", theirs).ok());
  auto over_tcp = start_on("tcp", "over-tcp");
  auto over_shm = start_on("shm", "over-shm");
  const int each = scaled(500);
  std::vector<Future<std::uint64_t>> adding;
  std::vector<std::pair<Peer, RemoteRegion>> peers;
  for (PeerAgent* client : {over_tcp.get(), over_shm.get()}) {
    Peer peer = client->peer(owner->address());
    const RemoteRegion remote = take(peer.region("counter", kSoon));
    peers.emplace_back(peer, remote);
  }
  for (int i = 0; i < each; ++i) {
    for (auto& [peer, remote] : peers) adding.push_back(peer.fetch_add(remote, 0, 1));
  }
  for (auto& one : adding) REQUIRE(one.wait(kSoon).has_value());
  CHECK(read_number(theirs) == static_cast<std::uint64_t>(2 * each));
}

TEST_CASE("a region that is closed is out of reach of peers on every provider") {
  auto server = start_on("auto", "server");
  auto over_tcp = start_on("tcp", "over-tcp");
  auto over_shm = start_on("auto", "over-shm");
  std::vector<std::uint64_t> memory(512, 7);
  auto theirs = take(server->register_memory(memory.data(), 4096, Rights::kReadWrite));
  REQUIRE(server->publish("theirs", theirs).ok());
  struct Client {
    Peer peer;
    MemoryRegion mine;
    RemoteRegion remote;
  };
  std::vector<Client> clients;
  for (PeerAgent* agent : {over_tcp.get(), over_shm.get()}) {
    Peer peer = agent->peer(server->address());
    auto remote = take(peer.region("theirs", kSoon));
    clients.push_back({peer, take(agent->allocate(4096, Rights::kLocal)), remote});
  }
  REQUIRE(theirs.close().ok());
  for (Client& client : clients) {
    const Copy copy{client.mine, 0, client.remote, 0, 4096};
    CHECK(code_of(client.peer.write({&copy, 1}).wait(kSoon)) == Code::kNotFound);
  }
  CHECK(memory == std::vector<std::uint64_t>(512, 7));
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_CASE("a peer that is connected costs an agent that chooses at most four descriptors") {
  auto server = start_on("auto", "server");
  constexpr std::size_t kPeers = 10;
  std::vector<std::unique_ptr<PeerAgent>> clients;
  for (std::size_t i = 0; i < kPeers; ++i) clients.push_back(start_on("auto", str("client-", i)));
  const std::size_t before = open_descriptors();
  for (auto& client : clients) {
    Peer peer = client->peer(server->address());
    REQUIRE(peer.connect().wait(kSoon).has_value());
    REQUIRE(contains(to_json(peer.info()), R"("provider":"shm")"));
  }
  CHECK(open_descriptors() - before <= 2 * 4 * kPeers);  // both ends are in this process
}

// ----------------------------------------------------------------------------------------- devices

// Providers of this machine, but for verbs on a fabric of the test's own.
std::vector<transport::ProviderEntry> with_verbs(transport::testing::FakeFabric& fabric) {
  const transport::ProviderTable real = transport::provider_table();
  std::vector<transport::ProviderEntry> out(real.begin(), real.end());
  for (transport::ProviderEntry& entry : out) {
    if (entry.name != "verbs") continue;
    entry.make = [&fabric](const auto&) {
      transport::verbs::Options options;
      options.device = "fake0";
      return transport::verbs::make_verbs_provider(fabric.functions(), options);
    };
  }
  return out;
}

TEST_CASE("an agent uses a provider that a table names, in the order of the table") {
  const transport::ProviderTable real = transport::provider_table();
  std::vector<transport::ProviderEntry> table(real.begin(), real.end());
  table.insert(table.begin(), transport::toy::toy_entry());
  const auto devices = take(agent::Devices::open("auto", table));
  CHECK(devices->name(0) == "toy");
  auto memory = take(devices->allocate(4096, Rights::kReadWrite, MemoryKind::kHost));
  CHECK(memory.on(0).length_bytes() == 4096);
  CHECK(memory.close(seconds(1)).ok());
  const auto pinned = take(agent::Devices::open("toy", table));
  CHECK(pinned->names() == std::vector<std::string>{"toy"});
  CHECK(code_of(agent::Devices::open("pigeons", table)) == Code::kNotFound);
}

TEST_CASE("with an RDMA device an agent has three devices, and memory is registered with all that are used") {
  transport::testing::FakeFabric fabric;
  {
    const auto devices = take(agent::Devices::open("auto", with_verbs(fabric)));
    CHECK(devices->names() == std::vector<std::string>{"shm", "verbs", "tcp"});
    CHECK(devices->describe() == "auto: shm, verbs, tcp");
    const std::size_t verbs = *devices->find("verbs");
    auto early = take(devices->allocate(4096, Rights::kReadWrite, MemoryKind::kHost));
    CHECK(early.missing(*devices->find("shm")).ok());
    CHECK(early.missing(*devices->find("tcp")).ok());
    CHECK(early.missing(verbs).code() == Code::kUnavailable);
    CHECK(devices->use(verbs));
    CHECK_FALSE(devices->use(verbs));  // it is not new any more
    CHECK_FALSE(devices->use(*devices->find("tcp")));
    CHECK_FALSE(early.missing(verbs).ok());
    devices->complete(early);
    CHECK(early.missing(verbs).ok());
    CHECK(early.close(seconds(1)).ok());
    auto memory = take(devices->allocate(4096, Rights::kReadWrite, MemoryKind::kHost));
    for (std::size_t i = 0; i < devices->size(); ++i) {
      CAPTURE(devices->name(i));
      CHECK(memory.missing(i).ok());
      CHECK(memory.on(i).data() == memory.data());
      CHECK(memory.on(i).length_bytes() == 4096);
    }
    // What peers map comes with its descriptor.
    CHECK(memory.on(*devices->find("shm")).memory_fd() >= 0);
    CHECK(memory.close(seconds(1)).ok());
  }
  CHECK(fabric.objects() == transport::testing::FakeObjects{});
}

TEST_CASE(
    "memory that the RDMA device does not take is had without it, and other memory and connections use the "
    "device as before") {
  transport::testing::FakeOptions options = transport::testing::FakeOptions::roce();
  options.memlock_bytes = 8192;
  transport::testing::FakeFabric fabric(options);
  const auto devices = take(agent::Devices::open("auto", with_verbs(fabric)));
  const std::size_t verbs = *devices->find("verbs");
  devices->use(verbs);
  auto small = take(devices->allocate(4096, Rights::kReadWrite, MemoryKind::kHost));
  CHECK(small.missing(verbs).ok());
  CHECK(devices->status(verbs).ok());

  auto large = take(devices->allocate(1 << 20, Rights::kReadWrite, MemoryKind::kHost));
  CHECK(large.missing(*devices->find("shm")).ok());
  CHECK(large.missing(*devices->find("tcp")).ok());
  const Status missing = large.missing(verbs);
  CAPTURE(missing.text());
  CHECK(missing.code() == Code::kResourceExhausted);
  CHECK(contains(missing.text(), "not registered with verbs"));
  CHECK(contains(missing.text(), "ulimit -l"));
  CHECK(small.missing(verbs).ok());  // what is there stays
  CHECK(devices->status(verbs).ok());
  CHECK(devices->describe() == "auto: shm, verbs, tcp");
  auto next = take(devices->allocate(4096, Rights::kReadWrite, MemoryKind::kHost));
  CHECK(next.missing(verbs).ok());
}

TEST_CASE("an agent that is pinned to verbs gets the error instead") {
  transport::testing::FakeOptions options = transport::testing::FakeOptions::roce();
  options.memlock_bytes = 8192;
  transport::testing::FakeFabric fabric(options);
  const auto devices = take(agent::Devices::open("verbs", with_verbs(fabric)));
  CHECK(devices->describe() == "pinned");
  const auto large = devices->allocate(1 << 20, Rights::kReadWrite, MemoryKind::kHost);
  CHECK(code_of(large) == Code::kResourceExhausted);
  CHECK(contains(large.status().text(), "ulimit -l"));
}

TEST_CASE("auto does without a device whose port does not open; who is pinned to it gets the error") {
  // Less than the message buffers of a port, as most machines have it.
  transport::testing::FakeOptions options = transport::testing::FakeOptions::roce();
  options.memlock_bytes = 8 << 20;
  transport::testing::FakeFabric fabric(options);
  const auto loop = take(transport::Loop::create());
  {
    const auto devices = take(agent::Devices::open("auto", with_verbs(fabric)));
    const auto ports = take(devices->open_ports(*loop));
    REQUIRE(ports.size() == 3);
    CHECK((ports[0] && !ports[1] && ports[2]));
    CHECK(devices->names() == std::vector<std::string>{"shm", "tcp"});
    CHECK(contains(devices->describe(), "auto: shm, tcp; no verbs: provider verbs: "));
    CHECK(contains(devices->describe(), "ulimit -l"));
    CHECK(devices->outlets(ports)[1].available.code() == Code::kResourceExhausted);
    CHECK(fabric.objects() == transport::testing::FakeObjects{});
    auto memory = take(devices->allocate(4096, Rights::kReadWrite, MemoryKind::kHost));
    CHECK(memory.missing(0).ok());
    CHECK(memory.missing(2).ok());
    CHECK_FALSE(memory.missing(1).ok());
  }
  const auto pinned = take(agent::Devices::open("verbs", with_verbs(fabric)));
  CHECK(code_of(pinned->open_ports(*loop)) == Code::kResourceExhausted);
}

TEST_CASE("auto does without a device that is not there, and says so; a wrong setting is an error") {
  transport::testing::FakeOptions options = transport::testing::FakeOptions::roce();
  SUBCASE("no device") {
    options.devices.clear();
    transport::testing::FakeFabric fabric(options);
    const auto devices = take(agent::Devices::open("auto", with_verbs(fabric)));
    CHECK(devices->names() == std::vector<std::string>{"shm", "tcp"});
    CHECK(contains(devices->describe(), "auto: shm, tcp; no verbs: provider verbs: "));
    CHECK(devices->status(*devices->find("verbs")).code() == Code::kUnavailable);
  }
  SUBCASE("another one is named") {
    options.devices[0].name = "mlx9_9";
    transport::testing::FakeFabric fabric(options);
    CHECK(code_of(agent::Devices::open("auto", with_verbs(fabric))) == Code::kInvalidArgument);
  }
}

TEST_CASE(
    "providers that failed with a peer are passed over together, with that peer alone, and not for ever") {
  agent::Avoided avoided;
  const InstanceId peer = InstanceId::random();
  const TimePoint now = steady_clock().now();
  const auto offered = [&](const InstanceId& to, TimePoint when) {
    std::vector<transport::Outlet> outlets{{"shm"}, {"verbs"}, {"tcp"}};
    avoided.apply(to, outlets, when);
    std::string out;
    for (const auto& outlet : outlets) out += outlet.available.ok() ? outlet.provider + " " : "";
    return out;
  };
  CHECK(avoided.add(peer, "shm", Status(Code::kResourceExhausted, "full"), now));
  CHECK(offered(peer, now) == "verbs tcp ");
  CHECK(avoided.add(peer, "verbs", Status(Code::kUnavailable, "dropped"), now + seconds(10)));
  CHECK(offered(peer, now + seconds(10)) == "tcp ");
  CHECK(offered(InstanceId::random(), now) == "shm verbs tcp ");
  CHECK(offered(peer, now + seconds(60)) == "shm tcp ");
  CHECK(offered(peer, now + seconds(70)) == "shm verbs tcp ");
}

TEST_CASE("memory of a kind that no device moves is refused with the reason") {
  const auto devices = take(agent::Devices::open("auto"));
  std::vector<std::byte> bytes(64);
  const auto region = devices->register_memory(bytes.data(), bytes.size(), Rights::kLocal, MemoryKind::kCuda);
  CHECK(code_of(region) == Code::kUnimplemented);
  CHECK(contains(region.status().text(), "host memory only"));
}

}  // namespace
}  // namespace slime::choice_test
