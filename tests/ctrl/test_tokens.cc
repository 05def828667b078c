#include <doctest/doctest.h>

#include "base/str.h"
#include "ctrl/api/api.h"
#include "ctrl/wire/json_bodies.h"
#include "tests/ctrl/tokens.h"

namespace slime::ctrl::tokens_test {
namespace {

using namespace test;

TEST_CASE("without tokens every request is allowed; with the first token, none without a token") {
  Fixture f;
  CHECK(f.enroll("a", "default", "").status == 200);
  const TokenInfo admin = f.make(Role::kAdmin, "*", "");
  const ApiReply refused = f.send("GET", "/v1/peers", "", "");
  CHECK(refused.status == 401);
  CHECK(wire::decode_error(refused.body)->code == Code::kUnauthenticated);
  CHECK(f.send("GET", "/v1/peers", "", admin.token).status == 200);
  CHECK(f.send("GET", "/healthz", "", "").status == 200);
}

TEST_CASE("the first token is not made over HTTP, and the refusal says how it is made") {
  Fixture f;
  const std::string admin = wire::encode(TokenRequest{Role::kAdmin, "*", "", 0});
  const ApiReply refused = f.send("POST", "/v1/tokens", admin, "");
  CHECK(refused.status == 403);
  CHECK(refused.body.find("nanoctrl token create --store") != std::string::npos);
  CHECK(refused.body.find("--admin-token-file") != std::string::npos);
  // Also with a token, which this server cannot verify.
  CHECK(f.send("POST", "/v1/tokens", admin, make_token(Role::kAdmin, "*", "", 0, 0).text).status == 403);
  CHECK(f.engine->look([](const Registry& registry) { return registry.tokens().empty(); }));
  CHECK(f.enroll("a", "default", "").status == 200);
}

TEST_CASE("the first token must be one that can make others, and the last such one stays") {
  Fixture f;
  const NewToken join = make_token(Role::kJoin, "default", "", 0, 0);
  CHECK(f.engine->submit(PutTokenCommand{join.record}).status.code() == Code::kInvalidArgument);
  const TokenInfo admin = f.make(Role::kAdmin, "*", "");
  CHECK(f.send("DELETE", str("/v1/tokens/", admin.id), "", admin.token).status == 400);
  const TokenInfo second = f.make(Role::kAdmin, "*", admin.token);
  CHECK(f.send("DELETE", str("/v1/tokens/", admin.id), "", second.token).status == 200);
  CHECK(f.send("GET", "/v1/peers", "", admin.token).status == 401);
}

TEST_CASE("a required token is required before there is any") {
  Fixture f({.require_token = true});
  CHECK(f.send("GET", "/v1/status", "", "").status == 401);
}

TEST_CASE("the administrator's token of the command line makes tokens and outlives them") {
  const NewToken root = make_token(Role::kAdmin, "*", "", 0, 0);
  ApiOptions options;
  options.admin_token = root.record;
  Fixture f(std::move(options));
  const TokenInfo only = f.make(Role::kJoin, "a", root.text);
  CHECK(f.enroll("w", "a", only.token).status == 200);
  CHECK(f.send("DELETE", str("/v1/tokens/", only.id), "", root.text).status == 200);
  CHECK(f.enroll("w", "a", only.token).status == 401);
  CHECK(f.send("GET", "/v1/tokens", "", root.text).status == 200);
}

TEST_CASE("a token of one scope sees nothing of others, not even how much there is") {
  Roles f;
  REQUIRE(f.enroll("one", "a", f.admin).status == 200);
  for (const char* name : {"x", "y", "z"}) REQUIRE(f.enroll(name, "b", f.admin).status == 200);
  const Result<ServerStatus> mine = wire::decode_status(f.send("GET", "/v1/status", "", f.reader).body);
  CHECK(mine->peers == 1);
  CHECK(mine->scopes == 1);
  CHECK(wire::decode_status(f.send("GET", "/v1/status", "", f.admin).body)->peers == 4);
  const Result<std::vector<ScopeInfo>> scopes =
      wire::decode_scopes(f.send("GET", "/v1/scopes", "", f.reader).body);
  REQUIRE(scopes);
  REQUIRE(scopes->size() == 1);
  CHECK((*scopes)[0].scope == "a");
  // A backup contains all scopes, so an administrator of one scope is refused.
  CHECK(f.send("GET", "/v1/backup", "", f.owner).status == 403);
  CHECK(f.send("GET", "/v1/backup", "", f.admin).status == 200);
  CHECK(f.send("GET", "/metrics", "", f.owner).status == 403);
  CHECK(f.send("GET", "/metrics", "", f.admin).status == 200);
  // An absent object of another scope is forbidden, not "not found".
  CHECK(f.send("GET", "/v1/peers/nobody?scope=b", "", f.reader).status == 403);
  CHECK(f.send("GET", "/v1/peers?scope=nowhere", "", f.reader).status == 403);
}

TEST_CASE("an administrator of a scope makes, lists and revokes tokens of that scope only") {
  Roles f;
  const TokenInfo mine = f.make(Role::kJoin, "a", f.owner);
  const TokenInfo other = f.make(Role::kJoin, "b", f.admin);
  CHECK(f.send("POST", "/v1/tokens", wire::encode(TokenRequest{Role::kRead, "b", "", 0}), f.owner).status ==
        403);
  CHECK(f.send("POST", "/v1/tokens", wire::encode(TokenRequest{Role::kRead, "*", "", 0}), f.owner).status ==
        403);
  const Result<std::vector<TokenInfo>> listed =
      wire::decode_tokens(f.send("GET", "/v1/tokens", "", f.owner).body);
  REQUIRE(listed);
  for (const TokenInfo& token : *listed) {
    CHECK(token.scope == "a");
    CHECK(token.token.empty());
  }
  CHECK(f.send("DELETE", str("/v1/tokens/", other.id), "", f.owner).status == 404);
  CHECK(f.send("DELETE", str("/v1/tokens/", mine.id), "", f.owner).status == 200);
  CHECK(wire::decode_tokens(f.send("GET", "/v1/tokens", "", f.admin).body)->size() == 5);
}

TEST_CASE("a token ends when it was said to end") {
  Roles f;
  const TokenInfo token = f.make(Role::kRead, "a", f.admin, 60);
  f.now_s += 59;
  CHECK(f.send("GET", "/v1/peers?scope=a", "", token.token).status == 200);
  f.now_s += 1;
  const ApiReply refused = f.send("GET", "/v1/peers?scope=a", "", token.token);
  CHECK(refused.status == 401);
  CHECK(refused.body.find("expired") != std::string::npos);
}

TEST_CASE("a token that would end later than a number can tell is not made") {
  Roles f;
  const auto make = [&](std::uint64_t expires_in_s) {
    return f
        .send("POST", "/v1/tokens", wire::encode(TokenRequest{Role::kRead, "a", "", expires_in_s}), f.admin)
        .status;
  };
  CHECK(make(limits::kTokenSecondsMax) == 200);
  CHECK(make(limits::kTokenSecondsMax + 1) == 400);
  CHECK(make(limits::kIntegerMax) == 400);
}

TEST_CASE("the stored hash of a token does not authenticate") {
  const NewToken token = make_token(Role::kAdmin, "*", "", 0, 0);
  Tokens tokens;
  tokens.emplace(token.record.id, token.record);
  CHECK(token.text.find(token.record.secret_sha256) == std::string::npos);
  CHECK(authenticate(tokens, "Bearer " + token.text, 0));
  CHECK_FALSE(
      authenticate(tokens, str("Bearer slime-", token.record.id, "-", token.record.secret_sha256), 0));
  CHECK_FALSE(authenticate(tokens, token.text, 0));
  CHECK_FALSE(authenticate(tokens, "Basic " + token.text, 0));
}

TEST_CASE("what is no token is told what one looks like, and a token that does not suffice what is needed") {
  const Status refused = authenticate({}, "Bearer secret", 0).status();
  CHECK(refused.code() == Code::kUnauthenticated);
  CHECK(refused.text() == "what was sent is not a token of nanoctrl (a token looks like slime-ID-SECRET)");
  const Principal reader{"id", Role::kRead, "a"};
  CHECK(reader.may(Role::kJoin, "a").text() == "the token's role is read; this needs one of role join");
  CHECK(reader.may(Role::kRead, "b").text() == "the token is of scope 'a', not of 'b'; use one that is");
  CHECK(reader.may(Role::kRead, "*").text() == "the token is of scope 'a'; this needs one of all scopes");
}

}  // namespace
}  // namespace slime::ctrl::tokens_test
