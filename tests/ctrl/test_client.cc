#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/str.h"
#include "base/unique_fd.h"
#include "ctrl/client.h"
#include "ctrl/server.h"
#include "tests/ctrl/samples.h"
#include "tests/support/eventually.h"

namespace slime::ctrl::client_test {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using test::registration;

struct Fixture {
  explicit Fixture(std::uint64_t epoch = 1000, std::size_t watchers = 4) {
    ServerOptions options;
    options.port = 0;
    options.threads = 8;
    options.limits.parked = watchers;
    options.registry.epoch = epoch;
    Result<std::unique_ptr<Server>> bound = Server::bind(std::move(options), clock);
    REQUIRE(bound);
    server = std::move(*bound);
    REQUIRE(server->start().ok());
    client = make_client(server->url());
  }
  // Returns true once the server has that many watches.
  [[nodiscard]] bool has_watchers(std::uint64_t count) const {
    const auto asking = make_client(server->url());
    return eventually([&] {
      const Result<ServerStatus> status = asking->server_status();
      return status && status->watchers == count;
    });
  }
  static std::unique_ptr<Client> make_client(const std::string& url, Nanos timeout = 20s) {
    ClientOptions options;
    options.url = url;
    options.timeout = timeout;
    Result<std::unique_ptr<Client>> made = Client::create(options);
    REQUIRE(made);
    return std::move(*made);
  }

  ManualClock clock;
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;
};

// A socket that listens on a free loopback port and does nothing else.
struct SilentListener {
  SilentListener() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(fd.get(), 4) == 0);
    socklen_t size = sizeof address;
    REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
  }
  UniqueFd fd;
  std::uint16_t port = 0;
};

TEST_CASE("a registration is read back completely") {
  Fixture f;
  Registration r = registration("ns/model/worker-0", 1);
  r.scope = "team/a";
  r.providers = {"tcp", "shm"};
  r.metadata = {{"gpu", "h200 \"x\" \xc3\xa9"}};
  r.services = {{"calc", "math", {"add", "sub"}}};
  r.regions = {{"kv:0", 1ull << 40, RegionRights::kReadWrite}, {"w", 0, RegionRights::kLocal}};
  const Result<Lease> lease = f.client->register_peer(r);
  REQUIRE_MESSAGE(lease, lease.status().to_string());
  CHECK(lease->ttl == 15s);
  CHECK(lease->heartbeat_interval == 5s);
  CHECK(lease->server_epoch == 1000);
  const Result<PeerInfo> peer = f.client->get_peer("team/a", "ns/model/worker-0");
  REQUIRE(peer);
  CHECK(static_cast<const Registration&>(*peer) == r);
  CHECK(peer->incarnation == lease->incarnation);
  CHECK(f.client->get_peer("default", "ns/model/worker-0").error().code() == Code::kNotFound);
  const Result<PeerList> list = f.client->list_peers({"team/a", "worker"});
  REQUIRE(list);
  REQUIRE(list->peers.size() == 1);
  CHECK(list->revision == lease->revision);
  CHECK(f.client->list_peers({"team/a", "cache"})->peers.empty());
  const auto services = f.client->list_services({.scope = "team/a", .kind = "math"});
  REQUIRE(services);
  REQUIRE(services->services.size() == 1);
  CHECK(services->services.front().service == r.services[0]);
  CHECK(services->services.front().address == r.address);
  CHECK(services->server_epoch == 1000);
  CHECK(services->revision == lease->revision);
  const std::string& name = r.services[0].name;
  CHECK(f.client->list_services({.scope = "team/a", .name = name})->services.size() == 1);
  CHECK(f.client->list_services({.scope = "team/a", .name = name + "x"})->services.empty());
  CHECK(f.client->list_services({.name = name})->services.empty());
  const auto regions = f.client->list_regions("team/a", "ns/model/worker-0");
  REQUIRE(regions);
  REQUIRE(regions->size() == 2);
  CHECK(regions->front().region == r.regions[0]);
  CHECK(f.client->deregister("team/a", r.name, lease->incarnation, lease->session).ok());
  CHECK(f.client->deregister("team/a", r.name, lease->incarnation, lease->session).code() == Code::kNotFound);
}

TEST_CASE("regions and services are published and withdrawn") {
  Fixture f;
  const Result<Lease> lease = f.client->register_peer(registration("a", 1));
  REQUIRE(lease);
  const std::vector<RegionInfo> regions = {{"x", 1}, {"y", 2}};
  REQUIRE(f.client->update_regions("default", "a", lease->incarnation, lease->session, regions).ok());
  const std::vector<std::string> gone = {"x"};
  REQUIRE(f.client->update_regions("default", "a", lease->incarnation, lease->session, {}, gone).ok());
  CHECK(f.client->get_peer("default", "a")->regions == std::vector<RegionInfo>{{"y", 2}});
  const std::vector<ServiceInfo> services = {{"s", "kind", {"m"}}};
  REQUIRE(f.client->update_services("default", "a", lease->incarnation, lease->session, services).ok());
  CHECK(f.client->get_peer("default", "a")->services == services);
  CHECK(f.client->update_services("default", "a", lease->incarnation + 1, lease->session, services).code() ==
        Code::kAborted);
  CHECK(f.client->update_regions("default", "b", lease->incarnation, lease->session, regions).code() ==
        Code::kNotFound);
}

TEST_CASE("lists of more than a page come whole") {
  Fixture f;
  const std::string filler(1000, 'v');
  for (int i = 0; i < 70; ++i) {  // about 31 kB each: more than two pages
    Registration r = registration(str("peer", 100 + i), 1);
    for (int k = 0; k < 31; ++k) r.metadata[str("key", k)] = filler;
    REQUIRE(f.client->register_peer(r));
  }
  const Result<PeerList> list = f.client->list_peers();
  REQUIRE(list);
  REQUIRE(list->peers.size() == 70);
  for (int i = 0; i < 70; ++i) CHECK(list->peers[static_cast<std::size_t>(i)].name == str("peer", 100 + i));
}

TEST_CASE("a holder that is gone loses its name, a silent one keeps it, unless taken over") {
  Fixture f;
  Registration dead = registration("a", 1);
  {
    const SilentListener closed;
    dead.address = str("127.0.0.1:", closed.port);
  }
  REQUIRE(f.client->register_peer(dead));
  const Result<Lease> taken = f.client->register_peer(registration("a", 2));
  CHECK_MESSAGE(taken, taken.status().to_string());

  const SilentListener frozen;
  Registration silent = registration("b", 1);
  silent.address = str("127.0.0.1:", frozen.port);
  const Result<Lease> held = f.client->register_peer(silent);
  REQUIRE(held);
  CHECK(f.client->register_peer(registration("b", 2)).error().code() == Code::kAlreadyExists);
  REQUIRE(f.client->register_peer(registration("b", 2), {}, true));
  CHECK(f.client->heartbeat("default", "b", held->incarnation, held->session).error().code() ==
        Code::kAborted);
}

TEST_CASE("a restarted server knows no peers; the agent registers again and continues") {
  auto first = std::make_unique<Fixture>(1000);
  const Result<Lease> before = first->client->register_peer(registration("a", 1));
  first.reset();
  Fixture second(wall_clock_epoch());
  CHECK(second.client->heartbeat("default", "a", before->incarnation, before->session, before->revision)
            .error()
            .code() == Code::kNotFound);
  const Result<Lease> after = second.client->register_peer(registration("a", 1));
  REQUIRE(after);
  CHECK(after->incarnation > before->incarnation);
  CHECK(after->server_epoch != before->server_epoch);
  CHECK(
      second.client->heartbeat("default", "a", after->incarnation, after->session, before->revision)->resync);
}

TEST_CASE("the lease ends by the server's clock without any request") {
  Fixture f;
  const Result<Lease> lease = f.client->register_peer(registration("a", 1));
  REQUIRE(lease);
  f.clock.advance(15s);
  const Result<Changes> changes = f.client->watch("default", lease->revision, 30s);
  REQUIRE_MESSAGE(changes, changes.status().to_string());
  REQUIRE(changes->events.size() == 1);
  CHECK(changes->events[0].kind == EventKind::kExpired);
}

TEST_CASE("a watch wakes with the change") {
  Fixture f;
  Result<Changes> changes = Status(Code::kInternal, "not run");
  std::thread watcher([&] { changes = f.client->watch("default", 1000, 30s); });
  CHECK(f.has_watchers(1));
  REQUIRE(f.client->register_peer(registration("a", 1)));
  watcher.join();
  REQUIRE(changes);
  CHECK(changes->events.at(0).name == "a");
}

TEST_CASE("full watches do not hold up heartbeats, and one more is refused") {
  Fixture f;
  const Result<Lease> lease = f.client->register_peer(registration("a", 1));
  REQUIRE(lease);
  std::vector<std::thread> watchers;
  for (int i = 0; i < 4; ++i)
    watchers.emplace_back([&] { f.client->watch("default", 1001, 30s).status().ignore(); });
  CHECK(f.has_watchers(4));
  CHECK(f.client->watch("default", 1001, 30s).error().code() == Code::kResourceExhausted);
  for (int i = 0; i < 20; ++i) CHECK(f.client->heartbeat("default", "a", lease->incarnation, lease->session));
  CHECK(f.client->deregister("default", "a", lease->incarnation, lease->session).ok());
  for (std::thread& watcher : watchers) watcher.join();
}

TEST_CASE("stop ends a call under way and refuses later ones") {
  Fixture f;
  Result<Changes> changes = Status(Code::kInternal, "not run");
  std::thread watcher([&] { changes = f.client->watch("default", 1000, 30s); });
  CHECK(f.has_watchers(1));
  f.client->stop();
  watcher.join();
  CHECK(changes.error().code() == Code::kCancelled);
  CHECK(f.client->server_status().error().code() == Code::kCancelled);
}

TEST_CASE("stopping the server ends watches at once") {
  Fixture f;
  Result<Changes> changes = Status(Code::kInternal, "not run");
  std::thread watcher([&] { changes = f.client->watch("default", 1000, 30s); });
  CHECK(f.has_watchers(1));
  const TimePoint start = steady_clock().now();
  f.server->stop();
  watcher.join();
  CHECK(steady_clock().now() - start < 10s);
  CHECK(changes.error().code() == Code::kUnavailable);
}

TEST_CASE("no server: unavailable, not executed, and a hint to start one") {
  std::uint16_t port = 0;
  {
    const SilentListener closed;
    port = closed.port;
  }
  const auto client = Fixture::make_client(str("http://127.0.0.1:", port));
  const Status status = client->register_peer(registration("a", 1)).error();
  CHECK(status.code() == Code::kUnavailable);
  CHECK_FALSE(status.maybe_executed());
  CHECK(status.text().find(str("nanoctrl start --port ", port)) != std::string::npos);
}

TEST_CASE("connected but silent: the deadline, and it may have been executed") {
  const SilentListener silent;
  const auto client = Fixture::make_client(str("http://127.0.0.1:", silent.port), 50ms);
  const Status status = client->server_status().error();
  CHECK(status.code() == Code::kDeadlineExceeded);
  CHECK(status.maybe_executed());
}

TEST_CASE("valid and invalid addresses of nanoctrl") {
  for (const char* url : {"http://127.0.0.1:4479", "http://localhost:1/", "http://[::1]:4479",
                          "https://host:1", "http://a:1,https://b:2/"}) {
    CAPTURE(url);
    CHECK(ClientOptions{.url = url}.validate().ok());
  }
  for (const char* url :
       {"", "127.0.0.1:4479", "http://", "http://host", "http://host:0", "http://host:1/v1", "ftp://host:1",
        "http://user@host:1", "http://::1:4479", "http://a:1,", ",http://a:1", "http://a:1, http://b:1"}) {
    CAPTURE(url);
    CHECK(ClientOptions{.url = url}.validate().code() == Code::kInvalidArgument);
  }
}

TEST_CASE("a registration that breaks a limit is refused before it is sent") {
  const auto client = Fixture::make_client("http://127.0.0.1:9");
  CHECK(client->register_peer(registration("a b", 1)).error().code() == Code::kInvalidArgument);
}

TEST_CASE("many clients at once each keep their own name") {
  Fixture f;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (std::uint8_t i = 1; i <= 6; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = str("peer", int{i});
      const Result<Lease> lease = f.client->register_peer(registration(name, i));
      if (!lease) return;
      for (int k = 0; k < 20; ++k) {
        if (!f.client->heartbeat("default", name, lease->incarnation, lease->session, lease->revision))
          return;
      }
      if (f.client->deregister("default", name, lease->incarnation, lease->session).ok()) ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 6);
  CHECK(f.client->server_status()->peers == 0);
}

}  // namespace
}  // namespace slime::ctrl::client_test
