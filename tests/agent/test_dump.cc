// What an agent tells of itself while it works, and while it hangs.
#include <atomic>

#include "agent/dump.h"
#include "tests/agent/agents.h"

namespace slime {
namespace {

using namespace test;

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// A service whose method answers when the test says so, on the handler pool or on the loop.
struct Held {
  std::atomic<bool> entered{false};
  std::atomic<bool> release{false};
  rpc::Service service(rpc::Run run) {
    rpc::Service out("held");
    auto added = out.add("wait",
                         [this] {
                           entered = true;
                           eventually([this] { return release.load(); });
                           return 1;
                         },
                         {.run = run});
    REQUIRE(added.ok());
    return out;
  }
};

TEST_CASE("a dump shows agents, their peers, ports and counters, and nothing of those that are gone") {
  auto a = start("dump-a");
  auto b = start("dump-b");
  rpc::Service calc = calculator();
  REQUIRE(b->serve(calc).ok());
  REQUIRE(take(a->peer(b->address()).call<std::int64_t>("calc", "add", 1, 2).wait(kSoon)) == 3);
  const std::string text = dump();
  CAPTURE(text);
  CHECK(contains(text, "agent dump-a: scope default, address "));
  CHECK(contains(text, "agent dump-b: "));
  CHECK(contains(text, "  port: endpoints 1, free_slots "));
  CHECK(contains(text, "  peer dump-b: "));
  CHECK(contains(text, "state ready"));
  CHECK(contains(text, "    counters: calls 1"));
  CHECK_FALSE(contains(text, "  operation "));
  CHECK_FALSE(contains(text, "credit_stalls"));
  CHECK(contains(to_json(a->info()), "\"credit_stalls\":0"));
  REQUIRE(b->close().ok());
  b.reset();
  CHECK_FALSE(contains(dump(), "agent dump-b: "));
}

TEST_CASE("what has not ended is listed, the oldest first, with its age and what it waits for") {
  auto a = start("dump-a");
  auto b = start("dump-b");
  Held held;
  rpc::Service service = held.service(rpc::Run::kPool);
  REQUIRE(b->serve(service).ok());
  Peer peer = a->peer(b->address());
  auto call = peer.with_timeout(seconds(600)).call<int>("held", "wait");
  REQUIRE(eventually([&] { return held.entered.load(); }));
  auto message = peer.recv(7);
  auto nobody = a->peer("nobody").recv(8);
  REQUIRE(eventually([&] { return number_in(to_json(a->info()), "operations_in_flight") == 3; }));
  const std::string text = dump();
  CAPTURE(text);
  const auto first = text.find("  operation call held.wait: peer dump-b, stage under way");
  const auto second = text.find("  operation recv with tag 7: peer dump-b, stage under way");
  const auto third =
      text.find("  operation recv with tag 8: peer nobody, stage waits for its peer to connect");
  CHECK(first != std::string::npos);
  CHECK(second != std::string::npos);
  CHECK(third != std::string::npos);
  CHECK(first < second);
  CHECK(second < third);
  CHECK(contains(text, ", deadline_ms 5"));  // 599,... of the call
  CHECK(eventually([&] { return number_in(to_json(a->info()), "age_ms") >= 20; }));
  held.release = true;
  CHECK(take(call.wait(kSoon)) == 1);
  message.cancel();
  nobody.cancel();
  CHECK(eventually([&] { return number_in(to_json(a->info()), "operations_in_flight") == 0; }));
}

TEST_CASE("of many operations the oldest are shown, and how many there are") {
  auto a = start("dump-a");
  std::vector<Future<Payload>> waiting;
  for (std::uint64_t tag = 1; tag <= 100; ++tag) waiting.push_back(a->peer("nobody").recv(tag));
  CHECK(eventually([&] { return number_in(to_json(a->info()), "operations_in_flight") == 100; }));
  const std::string info = to_json(a->info());
  CHECK(contains(info, "recv with tag 64"));
  CHECK_FALSE(contains(info, "recv with tag 65"));
}

TEST_CASE("an agent whose loop hangs is told without it, in bounded time, and the others whole") {
  auto a = start("dump-a");
  auto b = start("dump-b");
  Held held;
  rpc::Service service = held.service(rpc::Run::kInline);  // keeps b's loop
  REQUIRE(b->serve(service).ok());
  auto call = a->peer(b->address()).call<int>("held", "wait");
  REQUIRE(eventually([&] { return held.entered.load(); }));
  const TimePoint begin = steady_clock().now();
  const std::string text = dump();
  CHECK(steady_clock().now() - begin < kSoon);
  CAPTURE(text);
  CHECK(contains(text, "agent dump-b: "));
  CHECK(contains(text, "loop does not answer: a callback or an inline handler keeps it"));
  CHECK(contains(text, "  operation call held.wait: peer dump-b, stage under way"));
  held.release = true;
  CHECK(take(call.wait(kSoon)) == 1);
  CHECK_FALSE(contains(dump(), "does not answer"));
}

TEST_CASE("dump() shows an agent with Progress::kCaller while no thread drives it") {
  auto a = start("dump-a", Progress::kCaller);
  auto never = a->peer("nobody").recv(1);
  const std::string text = dump();
  CAPTURE(text);
  CHECK(contains(text, "operation recv with tag 1"));
  CHECK_FALSE(contains(text, "does not answer"));
}

TEST_CASE("a peer's name cannot write into the dump what it likes") {
  auto a = start("dump-a");
  auto never = a->peer("evil\n\x1b[2Jagent fake").recv(1);
  REQUIRE(eventually([&] { return number_in(to_json(a->info()), "operations_in_flight") == 1; }));
  const std::string text = dump();
  CAPTURE(text);
  CHECK_FALSE(contains(text, "\nagent fake"));
  CHECK_FALSE(contains(text, "\x1b"));
  CHECK(contains(text, "evil\\n"));
}

}  // namespace
}  // namespace slime
