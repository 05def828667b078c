#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "ctrl/http/fair_queue.h"
#include "ctrl/http/front.h"
#include "ctrl/http/front_mailbox.h"
#include "tests/ctrl/raw_http.h"
#include "tests/ctrl/tokens.h"

// How much one client or tenant can affect another.
namespace slime::ctrl::fairness_test {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using test::get;
using test::has;
using test::RawConnection;

using Connections = std::vector<std::unique_ptr<RawConnection>>;

std::unique_ptr<FrontJob> job_of(const std::string& tenant, std::uint64_t number) {
  auto out = std::make_unique<FrontJob>();
  out->tenant = tenant;
  out->connection = number;
  return out;
}

TEST_CASE("tenants take turns, however many requests one of them has") {
  FairQueue queue(10);
  for (std::uint64_t i = 0; i < 3; ++i) queue.push(job_of("many", i));
  queue.push(job_of("few", 10));
  queue.push(job_of("other", 20));
  std::vector<std::uint64_t> order;
  while (const auto job = queue.pop()) order.push_back(job->connection);
  CHECK(order == std::vector<std::uint64_t>{0, 10, 20, 1, 2});
  CHECK(queue.empty());
}

TEST_CASE("a tenant has so many requests at work, and the next one when one is done") {
  FairQueue queue(2);
  for (std::uint64_t i = 0; i < 4; ++i) queue.push(job_of("many", i));
  CHECK(queue.pop()->connection == 0);
  CHECK(queue.pop()->connection == 1);
  CHECK_FALSE(queue.ready());
  CHECK(queue.pop() == nullptr);
  CHECK_FALSE(queue.empty());
  queue.push(job_of("other", 10));
  CHECK(queue.pop()->connection == 10);
  queue.done("many");
  CHECK(queue.pop()->connection == 2);
  CHECK(queue.pop() == nullptr);
}

// A handler that holds its requests until it is opened.
class Gate {
 public:
  ApiReply wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    open_.wait(lock, [this] { return is_open_; });
    return {.body = "kept"};
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      is_open_ = true;
    }
    open_.notify_all();
  }
  [[nodiscard]] std::size_t waiting() {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable open_;
  std::size_t waiting_ = 0;
  bool is_open_ = false;
};

struct GatedFront {
  explicit GatedFront(std::size_t threads) {
    FrontOptions options;
    options.threads = threads;
    Result<std::unique_ptr<Front>> bound = Front::bind(
        options,
        [this](const ApiRequest& request) {
          if (request.target == "/quick") return ApiReply{.body = "quick"};
          return gate.wait();
        },
        [](std::string_view, std::string_view target) { return target == "/scan"; });
    REQUIRE(bound);
    front = std::move(*bound);
    front->start();
  }
  ~GatedFront() { gate.open(); }
  Connections ask(std::string_view target, std::size_t count) {
    Connections out;
    for (std::size_t i = 0; i < count; ++i) {
      out.push_back(std::make_unique<RawConnection>(front->port()));
      out.back()->send(get(target));
    }
    return out;
  }
  Gate gate;
  std::unique_ptr<Front> front;
};

TEST_CASE("requests of one address that take long leave threads to those of another") {
  GatedFront f(4);
  Connections slow = f.ask("/slow", 40);
  CHECK(eventually([&] { return f.gate.waiting() == 3; }));
  RawConnection other(f.front->port(), 2);
  other.send(get("/quick"));
  CHECK(other.read_reply().ends_with("quick"));
  CHECK(f.gate.waiting() == 3);
  f.gate.open();
  for (const auto& one : slow) CHECK(one->read_reply().ends_with("kept"));
}

TEST_CASE("lists have threads of their own, of which one tenant has half") {
  GatedFront f(2);
  Connections scans = f.ask("/scan", 200);
  CHECK(eventually([&] { return f.gate.waiting() >= 1; }));
  RawConnection same(f.front->port());
  same.send(get("/quick"));
  CHECK(same.read_reply().ends_with("quick"));
  const std::size_t of_first = f.gate.waiting();
  RawConnection other(f.front->port(), 2);
  other.send(get("/scan"));
  CHECK(eventually([&] { return f.gate.waiting() > of_first; }));
  f.gate.open();
  CHECK(other.read_reply().ends_with("kept"));
  for (const auto& one : scans) CHECK(one->read_reply().ends_with("kept"));
}

TEST_CASE("lists and backups count as scans, however their paths are written") {
  for (const std::string_view target :
       {"/v1/peers", "/v1/peers?scope=a", "/v1/%70eers", "/v1/peers#x", "/v1/services", "/v1/regions?name=x",
        "/v1/links", "/v1/backup", "/v1/tokens", "/v1/scopes", "/metrics"})
    CHECK_MESSAGE(is_scan("GET", target), target);
  CHECK(is_scan("HEAD", "/v1/peers"));
  for (const std::string_view target : {"/v1/peers/a", "/v1/watch?since=1", "/healthz", "/v1/status", "/x"})
    CHECK_MESSAGE(!is_scan("GET", target), target);
  CHECK_FALSE(is_scan("POST", "/v1/peers"));
  CHECK(is_scan("POST", "/list_entities"));
  CHECK_FALSE(is_scan("POST", "/heartbeat"));
}

TEST_CASE("a client that stays over its rate is closed after eight refusals, and another address is served") {
  ServerOptions options = test::small_server();
  options.limits.requests_per_second = 5;  // a burst of ten
  const test::HttpServer server(options);
  RawConnection flooder(server.server->port());
  std::string requests;
  for (int i = 0; i < 2000; ++i) requests += get("/healthz");
  flooder.send(requests);
  RawConnection other(server.server->port(), 2);
  other.send(get("/healthz"));
  CHECK(other.read_reply().starts_with("HTTP/1.1 200"));
  const std::string answers = flooder.read_all();
  std::size_t refused = 0;
  for (std::size_t at = answers.find("HTTP/1.1 429"); at != std::string::npos;
       at = answers.find("HTTP/1.1 429", at + 1))
    ++refused;
  CHECK(refused == 8);
  CHECK(has(answers.substr(answers.rfind("HTTP/1.1")), "Connection: close"));
}

TEST_CASE("the last refusal of a handler says that it closes the connection") {
  ApiOptions api;
  api.requests_per_second_of_token = 1;
  const NewToken admin = make_token(Role::kAdmin, "*", "", 0, 0);
  api.admin_token = admin.record;
  ServerOptions options = test::small_server();
  options.api = api;
  const test::HttpServer server(options);
  RawConnection flooder(server.server->port());
  std::string requests;
  for (int i = 0; i < 30; ++i)
    requests +=
        str("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ", admin.text, "\r\n\r\n");
  flooder.send(requests);
  const std::string answers = flooder.read_all();
  const std::string last = answers.substr(answers.rfind("HTTP/1.1"));
  CHECK(last.starts_with("HTTP/1.1 429"));
  CHECK(has(last, "Connection: close"));
}

TEST_CASE("a request that was parked counts once in its token's rate") {
  ApiOptions options;
  options.requests_per_second_of_token = 1.5;  // a burst of three
  const NewToken admin = make_token(Role::kAdmin, "*", "", 0, 0);
  options.admin_token = admin.record;
  test::Fixture limited(options);
  const std::string bearer = "Bearer " + admin.text;
  ApiRequest watch{.method = "GET", .target = "/v1/status", .content_type = {}, .body = {}};
  watch.authorization = bearer;
  watch.again = true;
  for (int i = 0; i < 10; ++i) CHECK(limited.api.handle(watch).status == 200);
  watch.again = false;
  for (int i = 0; i < 3; ++i) CHECK(limited.api.handle(watch).status == 200);
  CHECK(limited.api.handle(watch).status == 429);
}

TEST_CASE("a token has a rate of its own, wherever it is used") {
  ApiOptions options;
  options.requests_per_second_of_token = 1.5;  // a burst of three
  const NewToken admin = make_token(Role::kAdmin, "*", "", 0, 0);
  options.admin_token = admin.record;
  test::Fixture limited(options);
  for (int i = 0; i < 3; ++i) CHECK(limited.send("GET", "/v1/status", "", admin.text).status == 200);
  const ApiReply refused = limited.send("GET", "/v1/status", "", admin.text);
  CHECK(refused.status == 429);
  CHECK(has(refused.body, admin.record.id));
  CHECK(limited.send("GET", "/healthz", "", "").status == 200);
}

}  // namespace
}  // namespace slime::ctrl::fairness_test
