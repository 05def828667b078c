#include <sys/resource.h>

#include <memory>
#include <vector>

#include "base/str.h"
#include "ctrl/client.h"
#include "ctrl/http/rates.h"
#include "tests/ctrl/raw_http.h"
#include "tests/ctrl/samples.h"

// What idle, slow, greedy and too many clients can do to a server, and to other clients.
namespace slime::ctrl::front_test {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using test::enroll;
using test::get;
using test::has;
using test::HttpServer;
using test::RawConnection;

using Connections = std::vector<std::unique_ptr<RawConnection>>;

// Returns connections that have had one reply each, so that the server has seen them in this order.
Connections idle_connections(const HttpServer& f, int count) {
  Connections out;
  for (int i = 0; i < count; ++i) {
    out.push_back(std::make_unique<RawConnection>(f.server->port()));
    out.back()->send(get("/healthz"));
    REQUIRE(out.back()->read_reply().starts_with("HTTP/1.1 200"));
  }
  return out;
}

bool healthy(const HttpServer& f) {
  return f.exchange(get("/healthz", test::kClose)).starts_with("HTTP/1.1 200");
}

TEST_CASE("half a request gets 408 and delays no other client") {
  ServerOptions options = test::small_server();
  options.threads = 1;
  options.limits.request_time = 100ms;
  HttpServer f(options);
  Connections slow;
  for (const std::string_view part :
       {"GET /healthz HTTP/1.1\r\nHost:",
        "POST /v1/peers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"}) {
    slow.push_back(std::make_unique<RawConnection>(f.server->port()));
    slow.back()->send(part);
  }
  CHECK(healthy(f));
  for (const auto& one : slow) {
    const std::string answer = one->read_all();
    CHECK(answer.starts_with("HTTP/1.1 408"));
    CHECK(has(answer, "\"code\":"));
  }
}

TEST_CASE("an idle connection is closed after its time") {
  ServerOptions options = test::small_server();
  options.limits.idle_time = 20ms;
  HttpServer f(options);
  RawConnection silent(f.server->port());
  CHECK(silent.closed());
  RawConnection served(f.server->port());
  served.send(get("/healthz"));
  CHECK(served.read_all().size() < 1000);  // until it is closed
}

TEST_CASE("two thousand idle connections cost a heartbeat nothing") {
  HttpServer f;
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);  // the server has raised the limit
  const auto fit = static_cast<int>(std::min<rlim_t>(files.rlim_cur / 3, 2000));
  Connections idle;
  for (int i = 0; i < fit; ++i) idle.push_back(std::make_unique<RawConnection>(f.server->port()));
  const auto client = Client::create({.url = f.server->url()});
  REQUIRE(client);
  const Result<Lease> lease = (*client)->register_peer(test::registration("a", 1));
  REQUIRE_MESSAGE(lease, lease.status().to_string());
  for (int i = 0; i < 100; ++i)
    CHECK((*client)->heartbeat("default", "a", lease->incarnation, lease->session));
  for (const auto& one : idle) {
    one->send(get("/healthz"));
    CHECK(one->read_reply().starts_with("HTTP/1.1 200"));
  }
}

TEST_CASE("one connection too many takes the place of the one that is idle for the longest") {
  ServerOptions options = test::small_server();
  options.limits.connections = 3;
  HttpServer f(options);
  Connections idle = idle_connections(f, 3);
  idle[0]->send(get("/healthz"));
  CHECK(idle[0]->read_reply().starts_with("HTTP/1.1 200"));
  CHECK(healthy(f));
  CHECK(idle[1]->closed());
  for (const std::size_t i : {0, 2}) {
    idle[i]->send(get("/healthz"));
    CHECK(idle[i]->read_reply().starts_with("HTTP/1.1 200"));
  }
}

TEST_CASE("one connection too many is told so when all others are busy") {
  ServerOptions options = test::small_server();
  options.limits.connections = 2;
  HttpServer f(options);
  Connections busy;
  for (int i = 0; i < 2; ++i) {
    busy.push_back(std::make_unique<RawConnection>(f.server->port()));
    busy.back()->send(get("/healthz") + "GET /healthz");
    CHECK(busy.back()->read_reply().starts_with("HTTP/1.1 200"));
  }
  const std::string answer = f.exchange(get("/healthz"));
  CHECK(answer.starts_with("HTTP/1.1 503"));
  CHECK(has(answer, "Retry-After: 1"));
  CHECK(has(answer, "\"code\":\"unavailable\""));
  busy.pop_back();
  CHECK(eventually([&] { return healthy(f); }));
}

TEST_CASE("a reader that does not take its replies is closed, and holds no more than the limit meanwhile") {
  ServerOptions options = test::small_server();
  options.limits.connections = 1;
  options.limits.reply_time = 50ms;
  HttpServer f(options);
  Registration r = test::registration("a", 1);
  for (int k = 0; k < 31; ++k) r.metadata[str("key", k)] = std::string(1000, 'v');
  {
    const auto client = Client::create({.url = f.server->url()});
    for (int i = 0; i < 30; ++i) {
      r.name = str("peer", i);
      REQUIRE((*client)->register_peer(r));
    }
  }
  RawConnection greedy(f.server->port());
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += get("/v1/peers");  // 90 MB
  greedy.send(requests);
  CHECK(eventually([&] { return healthy(f); }));
  CHECK(greedy.read_all().size() < 80'000'000);
}

TEST_CASE("bytes of unfinished requests are bounded, and small requests go on") {
  ServerOptions options = test::small_server();
  options.limits.buffered_bytes = 100'000;
  HttpServer f(options);
  const std::string half =
      "POST /v1/peers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
      "100000\r\n\r\n" +
      std::string(90'000, ' ');
  RawConnection first(f.server->port());
  RawConnection second(f.server->port());
  first.send(half);
  second.send(half);
  // One of the two exceeded the limit; which one depends on the order of arrival.
  CHECK(healthy(f));
  first.send(std::string(10'000, ' '));
  second.send(std::string(10'000, ' '));
  const bool first_refused = first.read_reply().starts_with("HTTP/1.1 503");
  const bool second_refused = second.read_reply().starts_with("HTTP/1.1 503");
  CHECK((first_refused || second_refused));
}

TEST_CASE("a client that asks too often is told to come back later") {
  ServerOptions options = test::small_server();
  options.limits.requests_per_second = 0.001;  // a burst of 2 would be less than one request
  HttpServer f(options);
  RawConnection connection(f.server->port());
  connection.send(get("/healthz") + get("/healthz"));
  const std::string answer = connection.read_reply();
  CHECK(answer.starts_with("HTTP/1.1 429"));
  CHECK(has(answer, "Retry-After: 1"));
  CHECK(has(answer, "\"code\":\"resource_exhausted\""));
  CHECK(connection.read_reply().starts_with("HTTP/1.1 429"));  // and the connection stays open
}

TEST_CASE("requests refused before a route are counted") {
  HttpServer f;
  CHECK(has(f.exchange(get("/metrics", test::kClose)), "nanoctrl_refused_total 0"));
  CHECK(f.exchange("nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
  CHECK(has(f.exchange(get("/metrics", test::kClose)), "nanoctrl_refused_total 1"));
}

TEST_CASE(
    "each address has a bucket of its own, filled again with time; strangers beyond the bound share one") {
  Rates rates(10, 2);
  const TimePoint start = TimePoint(1h);
  for (int i = 0; i < 20; ++i) CHECK(rates.take("a", start));
  CHECK_FALSE(rates.take("a", start));
  CHECK(rates.take("b", start));
  CHECK(rates.take("a", start + 100ms));
  CHECK_FALSE(rates.take("a", start + 100ms));
  for (int i = 0; i < 20; ++i) CHECK(rates.take(str("stranger", i), start));
  CHECK_FALSE(rates.take("one more", start));
  CHECK(rates.take("one more", start + 10s));  // the other buckets were full and dropped
  for (int i = 0; i < 19; ++i) CHECK(rates.take("one more", start + 10s));
  CHECK_FALSE(rates.take("one more", start + 10s));
}

TEST_CASE("limits that make no sense are refused") {
  ServerOptions options = test::small_server();
  options.threads = 0;
  CHECK(options.validate().code() == Code::kInvalidArgument);
  options = test::small_server();
  options.limits.idle_time = Nanos::zero();
  CHECK(options.validate().code() == Code::kInvalidArgument);
  options = test::small_server();
  options.limits.connections = 0;
  CHECK(options.validate().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace slime::ctrl::front_test
