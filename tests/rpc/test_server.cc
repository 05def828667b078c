#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/str.h"
#include "rpc/interceptor.h"
#include "rpc/server.h"
#include "tests/rpc/server_caller.h"
#include "tests/support/eventually.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

int add_numbers(int a, int b) { return a + b; }

std::unique_ptr<Service> calculator(Run run) {
  auto service = std::make_unique<Service>("calc");
  const MethodOptions options{run};
  REQUIRE(service->add("add", add_numbers, options).ok());
  REQUIRE(service
              ->add(
                  "who", [](const CallInfo& info) { return str(info.peer, "/", info.method); }, options)
              .ok());
  REQUIRE(service
              ->add(
                  "join",
                  [](const std::vector<std::string>& parts, std::string_view separator) {
                    std::string out;
                    for (const std::string& part : parts)
                      out += (out.empty() ? "" : std::string(separator)) + part;
                    return out;
                  },
                  options)
              .ok());
  REQUIRE(service
              ->add(
                  "divide",
                  [](double a, double b) -> Result<double> {
                    if (b == 0) return Status(Code::kInvalidArgument, "division by zero");
                    return a / b;
                  },
                  options)
              .ok());
  REQUIRE(service
              ->add(
                  "status", [](bool good) { return good ? Status() : Status(Code::kPermissionDenied, "no"); },
                  options)
              .ok());
  REQUIRE(service
              ->add(
                  "nothing", [] {}, options)
              .ok());
  REQUIRE(service
              ->add(
                  "throws", [](int) -> int { throw std::runtime_error("boom"); }, options)
              .ok());
  REQUIRE(service
              ->add(
                  "throws_number", [] { throw 5; }, options)
              .ok());
  return service;
}

}  // namespace

TEST_CASE("typed handlers: arguments in, results and errors out, on the pool and inline") {
  for (const Run run : {Run::kPool, Run::kInline}) {
    Server server;
    const auto service = calculator(run);
    REQUIRE(server.add(*service).ok());
    CHECK(value<int>(call(server, "calc", "add", 2, 3)) == 5);
    CHECK(value<std::string>(call(server, "calc", "who")) == "tester/who");
    CHECK(value<std::string>(call(server, "calc", "join", std::vector<std::string>{"a", "b"}, "-")) == "a-b");
    CHECK(value<double>(call(server, "calc", "divide", 1.0, 2)) == 0.5);
    const Answer division = call(server, "calc", "divide", 1.0, 0.0);
    CHECK(division.status().code() == Code::kInvalidArgument);
    CHECK(division.status().text() == "division by zero");
    CHECK(division.status().maybe_executed());
    CHECK(call(server, "calc", "status", true).has_value());
    CHECK(call(server, "calc", "status", false).status().code() == Code::kPermissionDenied);
    CHECK(to_hex(*call(server, "calc", "nothing")) == "c0");
  }
}

TEST_CASE("what a handler throws becomes an internal error with its text") {
  Server server;
  const auto service = calculator(Run::kPool);
  REQUIRE(server.add(*service).ok());
  const Answer thrown = call(server, "calc", "throws", 1);
  CHECK(thrown.status().code() == Code::kInternal);
  CHECK(thrown.status().text() == "calc.throws threw: boom");
  CHECK(thrown.status().maybe_executed());
  CHECK(call(server, "calc", "throws_number").status().text() == "calc.throws_number threw");
  Service raw("raw");
  REQUIRE(raw.add_raw("throws", [](Request) { throw std::runtime_error("boom"); }).ok());
  REQUIRE(server.add(raw).ok());
  CHECK(call(server, "raw", "throws").status().code() == Code::kInternal);
}

TEST_CASE("unknown service, unknown method and bad arguments are three different answers") {
  Server server;
  const auto service = calculator(Run::kInline);
  REQUIRE(server.add(*service).ok());
  const Status no_service = call(server, "nope", "add", 1, 2).status();
  CHECK(no_service.code() == Code::kNotFound);
  CHECK(no_service.text() == "no service 'nope'");
  const Status no_method = call(server, "calc", "nope").status();
  CHECK(no_method.code() == Code::kNotFound);
  CHECK(no_method.text() ==
        "service 'calc' has no method 'nope'; it has: add, divide, join, nothing, status, throws, "
        "throws_number, who");
  const Status arguments = call(server, "calc", "add", 1).status();
  CHECK(arguments.code() == Code::kInvalidArgument);
  CHECK(arguments.text() == "bad arguments for calc.add: takes 2 (int, int), got 1");
  for (const Status& status : {no_service, no_method, arguments}) CHECK(!status.maybe_executed());
  CHECK(server.serves("calc", "add"));
  CHECK(!server.serves("calc", "nope"));
  CHECK(!server.serves("nope", "add"));
}

TEST_CASE("an unknown method is told ten names, and none where an interceptor may refuse to list them") {
  Server server;
  Service many("many");
  for (char name = 'a'; name <= 'k'; ++name) REQUIRE(many.add(std::string(1, name), [] {}).ok());
  REQUIRE(server.add(many).ok());
  CHECK(call(server, "many", "nope").status().text() ==
        "service 'many' has no method 'nope'; it has: a, b, c, d, e, f, g, h, i, j, ...");
  server.add_interceptor(std::make_shared<ServerInterceptor>());
  CHECK(call(server, "many", "nope").status().text() == "service 'many' has no method 'nope'");
}

TEST_CASE("services and methods are named once, with names that can be printed") {
  Service service("s");
  CHECK(service.add("m", [] {}).ok());
  CHECK(service.add("m", [] {}).code() == Code::kAlreadyExists);
  CHECK(service.add("", [] {}).code() == Code::kInvalidArgument);
  CHECK(service.add("a\nb", [] {}).code() == Code::kInvalidArgument);
  CHECK(service.add("\xc3\x28", [] {}).code() == Code::kInvalidArgument);
  CHECK(service.add("größe", [] {}).ok());
  CHECK(service.add(std::string(256, 'm'), [] {}).code() == Code::kInvalidArgument);
  Server server;
  CHECK(server.add(service).ok());
  CHECK(server.add(service).code() == Code::kAlreadyExists);
  CHECK(service.add("late", [] {}).code() == Code::kInvalidArgument);
  Service empty("empty");
  CHECK(server.add(empty).code() == Code::kInvalidArgument);
}

TEST_CASE("a full queue answers, and what an idle thread takes does not count") {
  Server server({.workers = 1, .queue_limit = 1});
  Gate gate;
  Service service("s");
  REQUIRE(service.add("wait", [&] { gate.pass(); }).ok());
  REQUIRE(server.add(service).ok());
  Caller first, second, third;
  server.handle(first.request("s", "wait", encode_arguments()));
  gate.wait_inside(1);
  server.handle(second.request("s", "wait", encode_arguments()));
  CHECK(server.counters().queued == 1);
  server.handle(third.request("s", "wait", encode_arguments()));
  const Status refused = third.wait().status();
  CHECK(refused.code() == Code::kResourceExhausted);
  CHECK(!refused.maybe_executed());
  gate.open();
  CHECK(first.wait().has_value());
  CHECK(second.wait().has_value());
  CHECK(server.counters().refused == 1);
}

TEST_CASE("queued work whose deadline has passed is answered and not run") {
  ManualClock clock;
  Server server({.workers = 1, .queue_limit = 1}, clock);
  Gate gate;
  std::atomic<int> runs{0};
  Service service("s");
  REQUIRE(service.add("wait", [&] { gate.pass(); }).ok());
  REQUIRE(service.add("count", [&] { ++runs; }).ok());
  REQUIRE(server.add(service).ok());
  Caller blocker, expired, replaced, next;
  server.handle(blocker.request("s", "wait", encode_arguments()));
  gate.wait_inside(1);
  server.handle(expired.request("s", "count", encode_arguments(), clock.now() + 1s));
  clock.advance(2s);
  // The queue is full, but only of what has expired.
  server.handle(replaced.request("s", "count", encode_arguments(), clock.now() + 1s));
  const Status status = expired.wait().status();
  CHECK(status.code() == Code::kDeadlineExceeded);
  CHECK(!status.maybe_executed());
  clock.advance(2s);
  gate.open();
  CHECK(replaced.wait().status().code() == Code::kDeadlineExceeded);
  CHECK(blocker.wait().has_value());
  CHECK(runs == 0);
  server.handle(next.request("s", "count", encode_arguments(), clock.now() + 1s));
  CHECK(next.wait().has_value());
  CHECK(runs == 1);
  CHECK(server.counters().expired == 2);
}

TEST_CASE("a request that is dropped is answered") {
  Server server;
  Service service("s");
  REQUIRE(service.add_raw("drop", [](Request request) { request.payload().release(); }).ok());
  REQUIRE(server.add(service).ok());
  const Status status = call(server, "s", "drop").status();
  CHECK(status.code() == Code::kInternal);
  CHECK(status.text() == "the handler of s.drop dropped the request without an answer");
  CHECK(status.maybe_executed());
}

TEST_CASE("a raw handler answers later, from any thread, even after the server is gone") {
  std::vector<Request> kept;
  Caller caller;
  {
    Server server;
    Service service("s");
    REQUIRE(
        service.add_raw("keep", [&](Request request) { kept.push_back(std::move(request)); }, {Run::kInline})
            .ok());
    REQUIRE(server.add(service).ok());
    server.handle(caller.request("s", "keep", encode_arguments(1)));
    CHECK(caller.answers() == 0);
    CHECK(server.counters().running == 1);
    CHECK(server.drain(Nanos(0)).code() == Code::kDeadlineExceeded);
  }
  std::thread([&] { kept.front().reply(encode_value(9)); }).join();
  CHECK(value<int>(caller.wait()) == 9);
  CHECK(caller.answers() == 1);
}

TEST_CASE("a removed service answers not found while its running handler finishes") {
  Server server({.workers = 2});
  Gate gate;
  Service service("s");
  REQUIRE(service
              .add("wait",
                   [&] {
                     gate.pass();
                     return 1;
                   })
              .ok());
  REQUIRE(server.add(service).ok());
  Caller running;
  server.handle(running.request("s", "wait", encode_arguments()));
  gate.wait_inside(1);
  CHECK(server.remove("s").ok());
  CHECK(server.remove("s").code() == Code::kNotFound);
  CHECK(call(server, "s", "wait").status().code() == Code::kNotFound);
  gate.open();
  CHECK(value<int>(running.wait()) == 1);
}

TEST_CASE("drain finishes what runs and refuses the rest") {
  Server server({.workers = 1});
  Gate gate;
  Service service("s");
  REQUIRE(service.add("wait", [&] { gate.pass(); }).ok());
  REQUIRE(server.add(service).ok());
  Caller running, queued;
  server.handle(running.request("s", "wait", encode_arguments()));
  server.handle(queued.request("s", "wait", encode_arguments()));
  gate.wait_inside(1);
  CHECK(server.drain(Nanos(0)).code() == Code::kDeadlineExceeded);
  const Status refused = call(server, "s", "wait").status();
  CHECK(refused.code() == Code::kUnavailable);
  CHECK(!refused.maybe_executed());
  gate.open();
  CHECK(server.drain(30s).ok());
  CHECK(running.wait().has_value());
  CHECK(queued.wait().has_value());
}

TEST_CASE("a handler that never returns costs its worker: other methods go on, and drain is bounded") {
  Server server({.workers = 2});
  Gate gate;
  Service service("s");
  REQUIRE(service.add("wait", [&] { gate.pass(); }).ok());
  REQUIRE(service.add("add", [](int a, int b) { return a + b; }).ok());
  REQUIRE(server.add(service).ok());
  Caller stuck;
  server.handle(stuck.request("s", "wait", encode_arguments()));
  gate.wait_inside(1);
  for (int i = 0; i < 1000; ++i) CHECK(value<int>(call(server, "s", "add", i, 2)) == i + 2);
  CHECK(server.drain(10ms).code() == Code::kDeadlineExceeded);
  // A worker has sent its reply a moment before it counts as done.
  CHECK(slime::test::eventually([&] { return server.counters().running == 1; }));
  gate.open();  // or destroying the server would wait for it
  CHECK(stuck.wait().has_value());
}

TEST_CASE("a destroyed server refuses what waits and waits for what runs") {
  Gate gate;
  Caller running, queued;
  std::thread opener;
  {
    Server server({.workers = 1});
    Service service("s");
    REQUIRE(service.add("wait", [&] { gate.pass(); }).ok());
    REQUIRE(server.add(service).ok());
    server.handle(running.request("s", "wait", encode_arguments()));
    gate.wait_inside(1);
    server.handle(queued.request("s", "wait", encode_arguments()));
    opener = std::thread([&] {
      CHECK(queued.wait().status().code() == Code::kUnavailable);
      gate.open();
    });
  }
  CHECK(running.answers() == 1);
  CHECK(running.wait().has_value());
  opener.join();
}

TEST_CASE("the pool runs handlers at once, up to its size") {
  Server server({.workers = 3});
  Gate gate;
  Service service("s");
  REQUIRE(service.add("wait", [&] { gate.pass(); }).ok());
  REQUIRE(server.add(service).ok());
  std::vector<Caller> callers(3);
  for (Caller& caller : callers) server.handle(caller.request("s", "wait", encode_arguments()));
  gate.wait_inside(3);
  CHECK(server.counters().running == 3);
  gate.open();
  for (Caller& caller : callers) CHECK(caller.wait().has_value());
}

TEST_CASE("what a request waits for a thread is its queue time, what its handler takes is not") {
  class Times final : public ServerInterceptor {
   public:
    void after(const CallInfo& info, const Status&, const CallTiming& times) override {
      if (info.method == "second") seen = times;
    }
    CallTiming seen;
  };
  ManualClock clock;
  const auto times = std::make_shared<Times>();
  Gate first;
  Gate second;
  Server server({.workers = 1}, clock);
  server.add_interceptor(times);
  Service service("s");
  REQUIRE(service.add("first", [&] { first.pass(); }).ok());
  REQUIRE(service.add("second", [&] { second.pass(); }).ok());
  REQUIRE(server.add(service).ok());
  Caller one;
  Caller two;
  server.handle(one.request("s", "first", encode_arguments()));
  first.wait_inside(1);
  server.handle(two.request("s", "second", encode_arguments()));
  clock.advance(7ms);
  first.open();
  second.wait_inside(1);
  clock.advance(2ms);
  second.open();
  CHECK(two.wait().has_value());
  CHECK(times->seen.queue == 7ms);
  CHECK(times->seen.handler == 2ms);
  CHECK(times->seen.network == Nanos::zero());
  CHECK(times->seen.total == 9ms);
}
