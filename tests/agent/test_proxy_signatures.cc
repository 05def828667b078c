#include "tests/agent/registry.h"

// Calls with a signature, through a proxy that picks the server.
namespace slime {
namespace {

using namespace test;

template <class F>
std::unique_ptr<PeerAgent> serve(const Registry& registry, std::string name, F method) {
  auto agent = test::start(options_for(registry, std::move(name)));
  rpc::Service service("s");
  REQUIRE(service.add("m", std::move(method)).ok());
  REQUIRE(agent->serve(service).ok());
  return agent;
}

TEST_CASE("a call that says its signature goes to a server that has this one") {
  Registry registry;
  const auto before = serve(registry, "before", [](std::int64_t a) { return a; });
  const auto after = serve(registry, "after", [](const std::string& a) { return a; });
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("s");
  const auto numbers = proxy.with_signature(rpc::Signature("(int) -> int"));
  const auto texts = proxy.with_signature(rpc::Signature("(str) -> str"));
  for (int i = 0; i < 6; ++i) {
    CHECK(take(numbers.call<std::int64_t>("m", 4).wait(kSoon)) == 4);
    CHECK(take(texts.call<std::string>("m", "x").wait(kSoon)) == "x");
  }
  REQUIRE(texts.one_way("m", "x").wait(kSoon).has_value());
  const auto neither = proxy.with_signature(rpc::Signature("() -> int")).call<std::int64_t>("m").wait(kSoon);
  CHECK(code_of(neither) == Code::kUnimplemented);
  CHECK_FALSE(neither.status().maybe_executed());
  CHECK(neither.status().text().find("called as () -> int") != std::string::npos);
  // What a server says of the service is asked by itself.
  CHECK(take(numbers.describe(kSoon).wait(kSoon)).name == "s");
}

}  // namespace
}  // namespace slime
