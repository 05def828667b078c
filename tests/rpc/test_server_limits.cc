#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <string>

#include "rpc/codec.h"
#include "rpc/server.h"
#include "tests/rpc/server_caller.h"

// Which requests run at once, which wait, and which is next.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;

TEST_CASE("requests of a method at its limit wait, and keep no thread from others") {
  Server server({.workers = 2});
  Gate gate;
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  Service service("s");
  REQUIRE(service
              .add("wait",
                   [&] {
                     most = std::max(most.load(), ++inside);
                     gate.pass();
                     --inside;
                   },
                   {.max_running = 1})
              .ok());
  REQUIRE(service.add("quick", [] { return 7; }).ok());
  REQUIRE(server.add(service).ok());
  std::array<Caller, 4> waiting;
  for (Caller& caller : waiting) server.handle(caller.request("s", "wait", encode_arguments()));
  gate.wait_inside(1);
  for (int i = 0; i < 3; ++i) CHECK(value<int>(call(server, "s", "quick")) == 7);
  CHECK(server.counters().queued == 3);
  gate.open();
  for (Caller& caller : waiting) CHECK(caller.wait().has_value());
  CHECK(most == 1);
  CHECK(server.drain(std::chrono::seconds(20)).ok());
}

TEST_CASE("a request counts until it is answered, and inline more are refused") {
  Server server;
  std::deque<Request> kept;
  Service service("s");
  REQUIRE(service
              .add_raw("keep", [&](Request request) { kept.push_back(std::move(request)); },
                       {.run = Run::kInline, .max_running = 2})
              .ok());
  REQUIRE(server.add(service).ok());
  std::array<Caller, 4> callers;
  for (std::size_t i = 0; i < 3; ++i) server.handle(callers[i].request("s", "keep", encode_arguments()));
  REQUIRE(kept.size() == 2);
  const Status refused = callers[2].wait().status();
  CHECK(refused.code() == Code::kResourceExhausted);
  CHECK_FALSE(refused.maybe_executed());
  kept.front().reply(encode_value(1));
  kept.pop_front();
  server.handle(callers[3].request("s", "keep", encode_arguments()));
  CHECK(kept.size() == 2);
  kept.clear();
  CHECK(server.counters().running == 0);
  CHECK(server.counters().refused == 1);
}

TEST_CASE("requests of a method at its limit leave room in the queue to others") {
  Server server({.workers = 2, .queue_limit = 4});
  Gate gate;
  Service service("s");
  REQUIRE(service.add("wait", [&] { gate.pass(); }, {.max_running = 1}).ok());
  REQUIRE(service.add("quick", [] { return 7; }).ok());
  REQUIRE(server.add(service).ok());
  std::array<Caller, 4> callers;
  server.handle(callers[0].request("s", "wait", encode_arguments()));
  gate.wait_inside(1);
  for (std::size_t i = 1; i < 4; ++i) server.handle(callers[i].request("s", "wait", encode_arguments()));
  CHECK(callers[3].wait().status().code() == Code::kResourceExhausted);
  CHECK(value<int>(call(server, "s", "quick")) == 7);
  gate.open();
  for (std::size_t i = 0; i < 3; ++i) CHECK(callers[i].wait().has_value());
}

TEST_CASE("of what waits the highest priority is next, in order of arrival") {
  Server server({.workers = 1});
  Gate gate;
  std::mutex mutex;
  std::string order;
  Service service("s");
  REQUIRE(service.add("wait", [&] { gate.pass(); }).ok());
  const auto add = [&](const char* name, Priority priority) {
    REQUIRE(service
                .add(name,
                     [&](const std::string& word) {
                       const std::lock_guard lock(mutex);
                       order += word;
                     },
                     {.priority = priority})
                .ok());
  };
  add("low", Priority::kLow);
  add("normal", Priority::kNormal);
  add("high", Priority::kHigh);
  REQUIRE(server.add(service).ok());
  Caller blocker;
  server.handle(blocker.request("s", "wait", encode_arguments()));
  gate.wait_inside(1);
  std::array<Caller, 6> callers;
  const std::array<const char*, 6> methods{"low", "normal", "high", "low", "high", "normal"};
  for (std::size_t i = 0; i < 6; ++i)
    server.handle(callers[i].request("s", methods[i], encode_arguments(std::to_string(i))));
  gate.open();
  for (Caller& caller : callers) CHECK(caller.wait().has_value());
  CHECK(order == "241503");
}
