// One scope cannot use up the shared limits: bytes of records, peers, reports, tokens.
#include <doctest/doctest.h>

#include "base/str.h"
#include "ctrl/api/api.h"
#include "ctrl/api/auth.h"
#include "ctrl/api/reports.h"
#include "ctrl/store/log_format.h"
#include "ctrl/wire/json_bodies.h"
#include "tests/ctrl/samples.h"

namespace slime::ctrl::quotas_test {
namespace {

using namespace std::chrono_literals;
using test::registration;

// Returns a record of about that many bytes.
Registration sized(const std::string& scope, const std::string& name, std::size_t bytes) {
  Registration out = registration(name, 1);
  out.scope = scope;
  for (int i = 0; bytes > 0; ++i) {
    RegionInfo region{str("region-", i), 1, RegionRights::kRead};
    bytes -= std::min(bytes, region.name.size() + 64);
    out.regions.push_back(std::move(region));
  }
  return out;
}

class Fixture {
 public:
  explicit Fixture(RegistryOptions options) : registry(options) {}
  Outcome apply(const Command& command) { return registry.apply(command, clock.now()); }
  // Registers peers of that size until one is refused; returns the number of registered peers.
  int fill(const std::string& scope, std::size_t bytes) {
    for (int i = 0;; ++i) {
      last = apply(RegisterCommand{sized(scope, str("peer-", i), bytes), 0, Proof::trusted()});
      if (!last.status.ok()) return i;
    }
  }
  ScopeUse use(const std::string& scope) const { return registry.uses().at(scope); }

  ManualClock clock;
  Registry registry;
  Outcome last;
};

TEST_CASE("a scope that is full of bytes refuses its own and leaves room for another's") {
  Fixture f({.record_bytes_max = 400'000, .record_bytes_per_scope_max = 100'000});
  CHECK(f.fill("greedy", 8'000) > 5);
  CHECK(f.last.status.code() == Code::kResourceExhausted);
  const std::string text(f.last.status.text());
  CHECK(text.find("'greedy'") != std::string::npos);
  CHECK(text.find("limit of 100000") != std::string::npos);
  CHECK(text.find(str("take ", f.use("greedy").record_bytes, " bytes")) != std::string::npos);
  CHECK(f.use("greedy").record_bytes <= 100'000);
  CHECK(f.apply(RegisterCommand{sized("modest", "a", 8'000), 0, Proof::trusted()}).status.ok());
  // Three more scopes like the first find room, too.
  for (const char* scope : {"second", "third"}) CHECK(f.fill(scope, 8'000) > 5);
  CHECK(f.fill("modest", 8'000) > 5);
}

TEST_CASE("updates, services and wanted links count, and what goes makes room") {
  Fixture f({.record_bytes_per_scope_max = 20'000});
  const Outcome a = f.apply(RegisterCommand{registration("a", 1), 0, Proof::trusted()});
  REQUIRE(a.status.ok());
  const std::size_t small = f.use("default").record_bytes;
  UpdateRegionsCommand regions{
      "default", "a", a.lease.incarnation, false, sized("", "", 30'000).regions, {}, Proof::trusted()};
  CHECK(f.apply(regions).status.code() == Code::kResourceExhausted);
  UpdateServicesCommand services{"default", "a", a.lease.incarnation, false, {}, {}, Proof::trusted()};
  for (int i = 0; i < 200; ++i) services.publish.push_back({str("service-", i), "kind", {"method"}});
  CHECK(f.apply(services).status.code() == Code::kResourceExhausted);
  std::vector<std::string> targets;
  targets.reserve(400);
  for (int i = 0; i < 400; ++i) targets.push_back(str("target-", i));
  CHECK(f.apply(SetLinksCommand{"default", "a", targets, Proof::trusted()}).status.code() ==
        Code::kResourceExhausted);
  CHECK(f.use("default").record_bytes == small);

  regions.publish.resize(150);
  REQUIRE(f.apply(regions).status.ok());
  CHECK(f.use("default").regions == 150);
  targets.resize(150);
  CHECK(f.apply(SetLinksCommand{"default", "a", targets, Proof::trusted()}).status.code() ==
        Code::kResourceExhausted);
  REQUIRE(f.apply(DeregisterCommand{"default", "a", a.lease.incarnation, Proof::trusted()}).status.ok());
  CHECK(f.use("default").record_bytes == 0);
  CHECK(f.apply(SetLinksCommand{"default", "a", targets, Proof::trusted()}).status.ok());
  REQUIRE(f.apply(SetLinksCommand{"default", "a", {}, Proof::trusted()}).status.ok());
  CHECK(f.use("default").record_bytes == 0);
  CHECK(f.registry.record_bytes() == 0);
}

TEST_CASE("a scope that is full of peers refuses another, with its name and limit, and others go on") {
  Fixture f({.peers_per_scope_max = 3});
  CHECK(f.fill("greedy", 0) == 3);
  CHECK(f.last.status.code() == Code::kResourceExhausted);
  CHECK(f.last.status.text() == "scope 'greedy' has 3 peers, its limit (--scope-peers)");
  CHECK(f.apply(RegisterCommand{sized("modest", "a", 0), 0, Proof::trusted()}).status.ok());
}

TEST_CASE("a registry whose quota was lowered is taken over, may shrink, and does not grow") {
  Fixture f({.epoch = 5});
  const Outcome large = f.apply(RegisterCommand{sized("default", "a", 50'000), 0, Proof::trusted()});
  REQUIRE(large.status.ok());
  Result<Registry> lower =
      Registry::restore({.record_bytes_per_scope_max = 10'000}, f.registry.state(), f.clock.now());
  REQUIRE(lower);
  CHECK(lower->uses().at("default").record_bytes == f.use("default").record_bytes);
  CHECK(lower->uses().at("default").regions == f.use("default").regions);
  const auto apply = [&](const Command& command) { return lower->apply(command, f.clock.now()).status; };
  CHECK(apply(HeartbeatCommand{"default", "a", large.lease.incarnation, Proof::trusted()}).ok());
  CHECK(apply(RegisterCommand{sized("default", "a", 50'000), 0, Proof::trusted()}).ok());
  CHECK(apply(RegisterCommand{sized("default", "b", 0), 0, Proof::trusted()}).code() ==
        Code::kResourceExhausted);
  CHECK(apply(RegisterCommand{sized("default", "a", 40'000), 0, Proof::trusted()}).ok());
  CHECK(apply(RegisterCommand{sized("default", "a", 1'000), 0, Proof::trusted()}).ok());
  CHECK(apply(RegisterCommand{sized("default", "b", 0), 0, Proof::trusted()}).ok());
}

TEST_CASE("what uses() counts is what is there, whatever happens to the peers") {
  Fixture f({.ttl = 10s});
  const Outcome a = f.apply(RegisterCommand{sized("s", "a", 1'000), 0, Proof::trusted()});
  Registration b = sized("s", "b", 500);
  b.services = {{"one", "", {}}, {"two", "", {}}};
  REQUIRE(f.apply(RegisterCommand{b, 0, Proof::trusted()}).status.ok());
  REQUIRE(f.apply(SetLinksCommand{"s", "a", {"b"}, Proof::trusted()}).status.ok());
  const ScopeUse full = f.use("s");
  CHECK(full.peers == 2);
  CHECK(full.services == 2);
  CHECK(full.regions == sized("", "", 1'000).regions.size() + b.regions.size());
  CHECK(full.links == 1);
  CHECK(full.revision == f.registry.revision("s"));
  CHECK(full.record_bytes == f.registry.record_bytes());
  // Another instance takes the name over with a smaller record.
  Registration other = sized("s", "a", 0);
  other.instance = test::instance(9);
  REQUIRE(f.apply(RegisterCommand{other, a.lease.incarnation, Proof::trusted()}).status.ok());
  CHECK(f.use("s").regions == b.regions.size());
  f.clock.advance(10s);
  f.apply(TickCommand{});
  CHECK(f.use("s").peers == 0);
  CHECK(f.use("s").services == 0);
  CHECK(f.use("s").regions == 0);
}

TEST_CASE("an administrator of one scope cannot use up the tokens of all") {
  Fixture f({});
  const auto put = [&](const std::string& scope) {
    return f.apply(PutTokenCommand{make_token(Role::kJoin, scope, "", 1, 0).record, true}).status;
  };
  for (std::size_t i = 0; i < limits::kTokensPerScope; ++i) REQUIRE(put("greedy").ok());
  const Status refused = put("greedy");
  CHECK(refused.code() == Code::kResourceExhausted);
  CHECK(refused.text() == str("scope 'greedy' has ", limits::kTokensPerScope, " tokens, its limit"));
  CHECK(put("modest").ok());
  CHECK(put("*").ok());
  // An existing token may be replaced, and revoking a token makes room.
  const std::string id = f.registry.tokens().begin()->first;
  TokenRecord mine;
  for (const auto& [token_id, token] : f.registry.tokens()) {
    if (token.scope == "greedy") mine = token;
  }
  mine.note = "another note";
  CHECK(f.apply(PutTokenCommand{mine, true}).status.ok());
  REQUIRE(f.apply(RevokeTokenCommand{mine.id, true}).status.ok());
  CHECK(put("greedy").ok());
}

TEST_CASE("reports of one scope leave room for those of another") {
  Reports reports(40'000, 10'000);
  Report report;
  for (int i = 0; i < 10; ++i) report.links.push_back({str("peer-", i), "tcp", "ready", 0, 0, 0, 0});
  int taken = 0;
  while (reports.put("greedy", str("agent-", taken), 1, report)) ++taken;
  CHECK(taken > 2);
  CHECK(taken < 10);
  CHECK(reports.put("modest", "agent", 1, report));
  // Agents of the full scope can replace their reports, and forgetting one makes room.
  CHECK(reports.put("greedy", "agent-0", 1, report));
  reports.forget("greedy", "agent-0");
  CHECK(reports.put("greedy", "another", 1, report));
  CHECK_FALSE(reports.put("greedy", "one-more", 1, report));
  CHECK(reports.slice("greedy", "", 100).reports.size() == static_cast<std::size_t>(taken));
}

TEST_CASE("over HTTP a full scope is 429, and its use and limits are in the list and the metrics") {
  ManualClock clock;
  RegistryOptions options;
  options.record_bytes_per_scope_max = 20'000;
  options.peers_per_scope_max = 7;
  Api api({}, std::make_unique<MemoryEngine>(options, clock), clock,
          [](const std::string&, const InstanceId&) { return ProbeResult::kSilent; });
  const auto enroll = [&](const Registration& r) {
    return api.handle(
        {"POST", "/v1/peers", "application/json", wire::encode(wire::RegisterRequest{r, false})});
  };
  REQUIRE(enroll(sized("greedy", "a", 15'000)).status == 200);
  const ApiReply refused = enroll(sized("greedy", "b", 15'000));
  CHECK(refused.status == 429);
  CHECK(wire::decode_error(refused.body)->message.find("'greedy'") != std::string::npos);
  CHECK(enroll(sized("modest", "b", 15'000)).status == 200);
  const Result<std::vector<ScopeInfo>> scopes =
      wire::decode_scopes(api.handle({"GET", "/v1/scopes", "", ""}).body);
  REQUIRE(scopes);
  REQUIRE(scopes->size() == 2);
  CHECK((*scopes)[0].record_bytes > 15'000);
  CHECK((*scopes)[0].record_bytes_max == 20'000);
  CHECK((*scopes)[0].peers_max == 7);
  const std::string metrics = api.handle({"GET", "/metrics", "", ""}).body;
  const std::string line =
      str("nanoctrl_scope_record_bytes{scope=\"greedy\"} ", (*scopes)[0].record_bytes, "\n");
  CHECK(metrics.find(line) != std::string::npos);
  CHECK(metrics.find("nanoctrl_scope_record_bytes_max 20000\n") != std::string::npos);
  CHECK(metrics.find("nanoctrl_scope_peers_max 7\n") != std::string::npos);
}

TEST_CASE("nanoctrl with other quotas do not share a log") {
  RegistryOptions mine;
  RegistryOptions yours = mine;
  yours.record_bytes_per_scope_max /= 2;
  CHECK(describe_rules(mine) != describe_rules(yours));
  yours = mine;
  yours.peers_per_scope_max /= 2;
  CHECK(describe_rules(mine) != describe_rules(yours));
  // A log from before quotas has no quotas that could differ.
  yours = mine;
  yours.record_bytes_per_scope_max /= 2;
  CHECK(describe_rules(mine, 2) == describe_rules(yours, 2));
}

}  // namespace
}  // namespace slime::ctrl::quotas_test
