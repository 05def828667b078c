#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/str.h"
#include "ctrl/http/front.h"
#include "tests/ctrl/raw_http.h"

// Requests that wait for a change, without a thread.
namespace slime::ctrl::parking_test {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using test::enroll;
using test::get;
using test::has;
using test::HttpServer;
using test::RawConnection;

using Connections = std::vector<std::unique_ptr<RawConnection>>;

std::string watch(const HttpServer& f, std::string_view scope = "default", int wait_ms = 30000) {
  return get(str("/v1/watch?scope=", scope, "&since=", f.server->api().epoch(), "&wait_ms=", wait_ms));
}

Connections watchers(const HttpServer& f, int count, std::string_view scope = "default") {
  Connections out;
  for (int i = 0; i < count; ++i) {
    out.push_back(std::make_unique<RawConnection>(f.server->port()));
    out.back()->send(watch(f, scope));
  }
  REQUIRE(f.has_watchers(static_cast<std::size_t>(count)));
  return out;
}

void change(const HttpServer& f, std::string_view name) {
  RawConnection connection(f.server->port());
  connection.send(enroll(name));
  REQUIRE(connection.read_reply().starts_with("HTTP/1.1 200"));
}

TEST_CASE("a change answers five hundred watches of its scope with four threads, and others wait on") {
  HttpServer f;
  Connections here = watchers(f, 500);
  RawConnection elsewhere(f.server->port());
  elsewhere.send(watch(f, "other"));
  REQUIRE(f.has_watchers(501));
  change(f, "a");
  for (const auto& one : here) CHECK(has(one->read_reply(), "\"name\":\"a\""));
  CHECK(f.has_watchers(1));
}

TEST_CASE("a watch is answered empty after its wait, and the connection goes on") {
  HttpServer f;
  RawConnection connection(f.server->port());
  connection.send(watch(f, "default", 20) + get("/healthz"));
  CHECK(has(connection.read_reply(), "\"events\":[]"));
  CHECK(has(connection.read_reply(), "\"ok\""));
  CHECK(f.has_watchers(0));
}

TEST_CASE("stopping answers the watches") {
  HttpServer f;
  Connections waiting = watchers(f, 3);
  std::thread stopper([&] { f.server->stop(); });
  for (const auto& one : waiting) {
    const std::string answer = one->read_all();
    CHECK(answer.starts_with("HTTP/1.1 503"));
    CHECK(has(answer, "\"code\":\"unavailable\""));
  }
  waiting.clear();
  stopper.join();
}

TEST_CASE("a watcher that goes is forgotten") {
  HttpServer f;
  Connections waiting = watchers(f, 3);
  waiting.pop_back();
  CHECK(f.has_watchers(2));
  waiting.clear();
  CHECK(f.has_watchers(0));
  change(f, "a");
}

TEST_CASE("one watch too many is 429 with a time to come back") {
  ServerOptions options = test::small_server();
  SUBCASE("of all") { options.limits.parked = 2; }
  SUBCASE("of one address") { options.limits.parked_per_client = 2; }
  HttpServer f(options);
  Connections waiting = watchers(f, 2);
  RawConnection refused(f.server->port());
  refused.send(watch(f));
  const std::string answer = refused.read_reply();
  CHECK(answer.starts_with("HTTP/1.1 429"));
  CHECK(has(answer, "Retry-After: "));
  CHECK(has(answer, "\"code\":\"resource_exhausted\""));
  waiting.pop_back();
  CHECK(f.has_watchers(1));
  refused.send(watch(f));
  CHECK(f.has_watchers(2));
}

// Returns a front with a handler that controls the moments of changes.
std::unique_ptr<Front> front(ApiHandler handler) {
  Result<std::unique_ptr<Front>> bound = Front::bind({.threads = 2}, std::move(handler));
  REQUIRE(bound);
  (*bound)->start();
  return std::move(*bound);
}

TEST_CASE("what changes between the look and the wait is not missed") {
  std::atomic<int> looks{0};
  std::promise<Front*> made;
  const std::shared_future<Front*> self = made.get_future().share();
  const auto under_test = front([&](const ApiRequest&) {
    ApiReply reply;
    if (++looks == 1) {
      self.get()->wake("key");  // after this look at the registry, before the request is parked
      reply.parked = Parked{"key", 1h};
    } else {
      reply.body = "{}";
    }
    return reply;
  });
  made.set_value(under_test.get());
  RawConnection connection(under_test->port());
  connection.send(get("/"));
  CHECK(connection.read_reply().ends_with("{}"));
  CHECK(looks == 2);
}

TEST_CASE("a request that is woken for nothing waits on, counted from when it began to wait") {
  std::atomic<int> looks{0};
  const auto under_test = front([&](const ApiRequest& request) {
    ++looks;
    ApiReply reply;
    if (request.answer_now) {
      reply.body = "over";
    } else {
      reply.parked = Parked{"key", looks == 1 ? Nanos(50ms) : Nanos(1h)};
    }
    return reply;
  });
  RawConnection connection(under_test->port());
  connection.send(get("/"));
  CHECK(eventually([&] { return under_test->parked() == 1; }));
  under_test->wake("key");
  CHECK(connection.read_reply().ends_with("over"));
  CHECK(looks >= 2);
}

TEST_CASE("the handler sees the client's address and its token as it was sent") {
  const auto under_test = front([](const ApiRequest& request) {
    ApiReply reply;
    reply.body = str(request.client, " ", request.authorization);
    reply.headers = {{"X-Extra", "yes"}};
    reply.content_type = "text/plain";
    return reply;
  });
  RawConnection connection(under_test->port());
  connection.send(get("/", "authorization:   Bearer a%41+b \r\n"));
  const std::string answer = connection.read_reply();
  CHECK(answer.ends_with("\r\n\r\n127.0.0.1 Bearer a%41+b"));
  CHECK(has(answer, "X-Extra: yes\r\n"));
  CHECK(has(answer, "Content-Type: text/plain\r\n"));
}

}  // namespace
}  // namespace slime::ctrl::parking_test
