#include <algorithm>
#include <atomic>

#include "agent/stub.h"
#include "rpc/stream.h"
#include "tests/agent/agents.h"

// Calls with a signature, through peers.
namespace slime::call_signatures_test {
namespace {

using namespace test;

void check_refused(const Status& status, std::string_view took) {
  CHECK(status.code() == Code::kUnimplemented);
  CHECK_FALSE(status.maybe_executed());
  for (const std::string_view part : {took, std::string_view("(int) -> int here")})
    CHECK_MESSAGE(status.text().find(part) != std::string::npos, status.text());
}

// Serves "s.twice", which counts, and "s.count", which streams.
struct Pair {
  Pair() {
    rpc::Service service("s");
    REQUIRE(service.add("twice", [this](std::int64_t a) { return ++calls, 2 * a; }).ok());
    REQUIRE(service
                .add("count", [](rpc::ServerStream<None, std::int64_t>& out,
                                 std::int64_t n) { return out.write(n).wait().status(); })
                .ok());
    REQUIRE(server->serve(service).ok());
  }
  std::atomic<int> calls{0};
  std::unique_ptr<PeerAgent> server = start("server");
  std::unique_ptr<PeerAgent> client = start("client");
  Peer peer = client->peer(server->address());
};

TEST_CASE("a method that its caller knows is called as its handler looks") {
  Pair pair;
  const rpc::Method<std::int64_t(std::int64_t)> good("s", "twice");
  const rpc::Method<std::int64_t(std::string)> bad("s", "twice");
  CHECK(take(pair.peer.call(good, 4).wait(kSoon)) == 8);
  check_refused(pair.peer.call(bad, "x").wait(kSoon).status(), "called as (str) -> int");
  REQUIRE(pair.peer.one_way(good, 4).wait(kSoon).has_value());
  REQUIRE(pair.peer.one_way(bad, "x").wait(kSoon).has_value());
  CHECK(eventually([&] { return number_in(to_json(pair.peer.info()), "one_way_failed") == 1; }));
  CHECK(eventually([&] { return pair.calls == 2; }));
}

TEST_CASE("calls of every kind of a peer with a signature are refused by a method that has another one") {
  Pair pair;
  Peer peer = pair.peer.with_signature(rpc::Signature("(bytes) -> int"));
  constexpr std::string_view kTook = "called as (bytes) -> int";
  check_refused(peer.call<std::int64_t>("s", "twice", 4).wait(kSoon).status(), kTook);
  const Attachment large(ByteVector(200'000));
  check_refused(peer.call<std::int64_t>("s", "twice", large).wait(kSoon).status(), kTook);
  check_refused(peer.with_metadata("k", "v").call<std::int64_t>("s", "twice", 4).wait(kSoon).status(), kTook);
  const auto ended = peer.stream<None, std::int64_t>("s", "count", 4).finish().wait(kSoon);
  CHECK(code_of(ended) == Code::kUnimplemented);
  CHECK(ended.status().text().find(kTook) != std::string::npos);
  CHECK(pair.calls == 0);
  // Others go on, and what the peer serves is asked by itself.
  CHECK(take(pair.peer.call<std::int64_t>("s", "twice", 4).wait(kSoon)) == 8);
  CHECK(take(peer.with_signature({}).call<std::int64_t>("s", "twice", 4).wait(kSoon)) == 8);
  CHECK_FALSE(take(peer.services(kSoon).wait(kSoon)).empty());
}

TEST_CASE("a stub says what its method is taken for, of calls and streams") {
  Pair pair;
  Stub stub("s", pair.peer);
  CHECK(
      take(stub.with_signature(rpc::Signature("(int) -> int")).call<std::int64_t>("twice", 4).wait(kSoon)) ==
      8);
  const rpc::Signature bad("(int, int) -> int");
  check_refused(stub.with_signature(bad).call<std::int64_t>("twice", 4).wait(kSoon).status(),
                "called as (int, int) -> int");
  auto good = stub.with_signature(rpc::Signature("(int) -> none writes int"))
                  .stream<None, std::int64_t, None>("count", 4);
  CHECK(take(good.read().wait(kSoon)) == 4);
  const auto refused =
      stub.with_signature(bad).stream<None, std::int64_t, None>("count", 4).finish().wait(kSoon);
  CHECK(code_of(refused) == Code::kUnimplemented);
}

TEST_CASE("the proxy of one service of a peer calls its methods, also with encoded arguments") {
  Pair pair;
  const Stub proxy = pair.peer.proxy("s");
  CHECK(proxy.service() == "s");
  CHECK(take(proxy.call<std::int64_t>("twice", 4).wait(kSoon)) == 8);
  CHECK(take(proxy.with_timeout(kSoon).call<std::int64_t>("twice", 5).wait(kSoon)) == 10);
  CHECK(proxy.one_way("twice", 6).wait(kSoon).has_value());
  const auto encoded = rpc::encode_arguments(std::int64_t{4});
  const auto eight = rpc::encode_value(std::int64_t{8});
  CHECK(std::ranges::equal(take(proxy.raw().call("twice", encoded).wait(kSoon)).bytes(), eight));
  CHECK(std::ranges::equal(take(pair.peer.raw().call("s", "twice", encoded).wait(kSoon)).bytes(), eight));
  auto [end, result] = proxy.raw().stream("count", encoded, true);
  auto first = take(end->read().wait(kSoon));
  REQUIRE(first.has_value());
  end->discard();
  result.cancel();
  CHECK(eventually([&] { return pair.calls == 5; }));
}

}  // namespace
}  // namespace slime::call_signatures_test
