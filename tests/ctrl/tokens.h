#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/str.h"
#include "ctrl/api/api.h"
#include "ctrl/wire/json_bodies.h"
#include "tests/ctrl/samples.h"

namespace slime::ctrl::test {

inline constexpr const char* kJson = "application/json";

// nanoctrl's routes over a registry in memory, with a clock that the test controls.
class Fixture {
 public:
  explicit Fixture(ApiOptions options = {})
      : engine(new MemoryEngine(RegistryOptions{}, clock)),
        api(with_time(std::move(options)), std::unique_ptr<Engine>(engine), clock,
            [this](const std::string&, const InstanceId&) {
              ++probes;
              return probed;
            }) {}

  ApiReply send(std::string_view method, std::string_view target, std::string_view body,
                std::string_view token) {
    const std::string header = token.empty() ? "" : str("Bearer ", token);
    return api.handle({.method = method,
                       .target = target,
                       .content_type = body.empty() ? "" : kJson,
                       .body = body,
                       .authorization = header});
  }
  // Makes a token and returns the reply. Without `by`, makes the first token directly in the store.
  TokenInfo make(Role role, const std::string& scope, std::string_view by, std::uint64_t expires_in_s = 0) {
    if (by.empty()) {
      const NewToken first = make_token(role, scope, "a note", now_s, expires_in_s);
      REQUIRE(engine->submit(PutTokenCommand{first.record}).status.ok());
      return {first.record.id, role, scope, "a note", now_s, first.record.expires_unix_s, first.text};
    }
    const ApiReply reply =
        send("POST", "/v1/tokens", wire::encode(TokenRequest{role, scope, "a note", expires_in_s}), by);
    REQUIRE_MESSAGE(reply.status == 200, reply.body);
    return *wire::decode_token_info(reply.body);
  }
  ApiReply beat(const std::string& name, std::uint64_t incarnation, std::string_view token,
                std::optional<std::uint64_t> keys_have, const std::string& scope) {
    return send("POST", str("/v1/peers/", name, "/heartbeat?scope=", scope),
                wire::encode(wire::HeartbeatRequest{incarnation, {}, {}, keys_have, session()}), token);
  }
  ApiReply enroll(const std::string& name, const std::string& scope, std::string_view token) {
    Registration peer = registration(name, 1);
    peer.scope = scope;
    return send("POST", "/v1/peers", wire::encode(wire::RegisterRequest{peer, false, session()}), token);
  }

  ManualClock clock;
  ProbeResult probed = ProbeResult::kSilent;  // result of each probe
  int probes = 0;
  std::uint64_t now_s = 1'000'000;
  MemoryEngine* const engine;  // owned by `api`
  Api api;

 private:
  ApiOptions with_time(ApiOptions options) {
    options.unix_time_s = [this] { return now_s; };
    return options;
  }
};

// Has a token of each role for scope "a", and one of all scopes.
struct Roles : Fixture {
  const std::string admin = make(Role::kAdmin, "*", "").token;
  const std::string reader = make(Role::kRead, "a", admin).token;
  const std::string member = make(Role::kJoin, "a", admin).token;
  const std::string owner = make(Role::kAdmin, "a", admin).token;
};

}  // namespace slime::ctrl::test
