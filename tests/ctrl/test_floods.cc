#include <sys/resource.h>

#include <fstream>
#include <memory>
#include <vector>

#include "tests/ctrl/every_route.h"
#include "tests/ctrl/nanoctrl.h"
#include "tests/support/eventually.h"
#include "tests/support/sanitizers.h"

// Floods of bytes and connections against a nanoctrl in its own process, whose memory is measured.
namespace slime::ctrl {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using slime::test::kSanitized;
using slime::test::scaled;
using test::Asker;
using test::get;
using test::has;
using test::HttpServer;
using test::Nanoctrl;
using test::RawConnection;
using test::request;

using Connections = std::vector<std::unique_ptr<RawConnection>>;

constexpr std::size_t kMiB = std::size_t{1} << 20;
// Memory for the process itself, its threads and malloc's caches. A sanitizer also keeps freed
// memory.
constexpr std::size_t kSlack = (kSanitized ? 320 : 48) * kMiB;

// Returns the server's resident memory in bytes.
std::size_t resident(Nanoctrl& server) {
  std::ifstream status(str("/proc/", server.process().pid(), "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6)) * 1024;
  }
  FAIL("the process has ended");
  return 0;
}

bool healthy(std::uint16_t port) { return Asker(port)(get("/healthz", test::kClose)).status == 200; }

// Returns the connections from /metrics.
std::size_t connections_of(Asker& ask) {
  const std::string text = ask(get("/metrics")).body;
  const std::size_t at = text.find("\nnanoctrl_connections ");
  REQUIRE(at != std::string::npos);
  return std::stoul(text.substr(at + 22));
}

// Returns how many connections a test may open to one server: two descriptors each, in separate
// processes.
int fitting(int wanted) {
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
  // nanoctrl reserves 512 descriptors for other uses.
  const auto fit = static_cast<int>(std::min<rlim_t>(files.rlim_max, 1'000'000)) - 600;
  if (fit < wanted) MESSAGE("only " << fit << " connections instead of " << wanted << " (ulimit -Hn)");
  REQUIRE(fit > 0);
  return std::min(fit, wanted);
}

TEST_CASE("bodies of 10 MB on every route, one after another, leave no memory behind") {
  Nanoctrl server("memory");
  const std::vector<test::RouteCase> routes = test::compat_routes();
  const std::string body = std::string().append(10'000'000, ' ');
  CHECK(healthy(server.port()));
  const std::size_t before = resident(server);
  for (int i = 0; i < scaled(200); ++i) {
    const test::RouteCase& route = routes[static_cast<std::size_t>(i) % routes.size()];
    RawConnection connection(server.port());
    connection.send(request(route.method, route.target, "", &body));
    const std::string answer = connection.read_all();
    CHECK(answer.starts_with("HTTP/1.1 413"));
    CHECK(has(answer, "Connection: close"));
  }
  const std::size_t after = resident(server);
  MESSAGE("resident before " << before / kMiB << " MiB, after " << after / kMiB << " MiB");
  CHECK(after < before + kSlack);
}

TEST_CASE("unfinished bodies on many connections take what the limit says, and others are served") {
  Nanoctrl server("memory");
  const std::string half =
      "POST /v1/peers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
      "4000000\r\n\r\n" +
      std::string(3'900'000, ' ');
  CHECK(healthy(server.port()));
  const std::size_t before = resident(server);
  Connections open;
  std::size_t peak = 0;
  for (int i = 0; i < scaled(100); ++i) {
    open.push_back(std::make_unique<RawConnection>(server.port()));
    open.back()->send(half);
    CHECK(healthy(server.port()));
    peak = std::max(peak, resident(server));
  }
  MESSAGE("resident before " << before / kMiB << " MiB, at most " << peak / kMiB << " MiB");
  CHECK(peak < before + limits::kBufferedBytes + kSlack);
}

TEST_CASE("connections that had a large reply keep none of its memory") {
  Nanoctrl server("memory");
  const auto client = server.client();
  Registration peer = test::registration("a", 1);
  for (int k = 0; k < 31; ++k) peer.metadata[str("key", k)] = std::string(1000, 'v');
  for (int i = 0; i < 30; ++i) {
    peer.name = str("peer", i);
    REQUIRE(client->register_peer(peer));
  }
  CHECK(healthy(server.port()));
  const std::size_t before = resident(server);
  Connections idle;
  for (int i = 0; i < scaled(200); ++i) {
    idle.push_back(std::make_unique<RawConnection>(server.port()));
    idle.back()->send(get("/v1/peers"));
    CHECK(idle.back()->read_reply().size() > 900'000);
  }
  const std::size_t after = resident(server);
  MESSAGE("resident before " << before / kMiB << " MiB, after " << after / kMiB << " MiB");
  CHECK(after < before + kSlack);
}

TEST_CASE("clients that trickle their bytes are closed with the time of a request, and others are served") {
  ServerOptions options = test::small_server();
  options.threads = 1;
  options.limits.request_time = 200ms;
  HttpServer server(options);
  const std::string_view requests[] = {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Filler: ",
                                       "POST /v1/peers HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                                       "application/json\r\nContent-Length: 1000000\r\n\r\n"};
  Connections slow;
  for (int i = 0; i < 50; ++i) {
    slow.push_back(std::make_unique<RawConnection>(server.server->port()));
    slow.back()->send(requests[static_cast<std::size_t>(i) % 2]);
  }
  Asker other(server.server->port());
  // Alternates single bytes with another client's requests; the loop ends when the server closes
  // them.
  const auto all_refused = [&] {
    CHECK(other(get("/healthz")).status == 200);
    bool out = true;
    for (const auto& one : slow) {
      if (one->readable()) continue;
      one->send("x");
      out = false;
    }
    return out;
  };
  CHECK(eventually(all_refused));
  for (const auto& one : slow) CHECK(one->read_all().starts_with("HTTP/1.1 408"));
}

TEST_CASE(
    "five thousand idle connections take little memory and delay no request, and are forgotten when they "
    "close") {
  const int count = fitting(scaled(5000));
  Nanoctrl server("memory");
  Asker ask(server.port());
  const std::size_t others = connections_of(ask);
  const std::size_t before = resident(server);
  Connections idle;
  for (int i = 0; i < count; ++i) idle.push_back(std::make_unique<RawConnection>(server.port()));
  CHECK(eventually([&] { return connections_of(ask) == others + static_cast<std::size_t>(count); }));
  const std::size_t after = resident(server);
  MESSAGE(count << " connections: resident before " << before / kMiB << " MiB, after " << after / kMiB
                << " MiB");
  CHECK(after < before + kSlack);
  const auto client = server.client();
  Registration peer;
  peer.name = "a";
  peer.instance.bytes[0] = std::byte{1};
  peer.address = "127.0.0.1:1";
  const Result<Lease> lease = client->register_peer(peer);
  REQUIRE_MESSAGE(lease, lease.status().to_string());
  for (int i = 0; i < 100; ++i) CHECK(client->heartbeat("default", "a", lease->incarnation, lease->session));
  const std::size_t with_client = others + 1;
  idle.clear();
  CHECK(eventually([&] { return connections_of(ask) <= with_client; }));
}

}  // namespace
}  // namespace slime::ctrl
