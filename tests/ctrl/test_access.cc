// Which requests a nanoctrl accepts at all.
#include <doctest/doctest.h>

#include "base/str.h"
#include "ctrl/api/access.h"

namespace slime::ctrl::access_test {
namespace {

struct World {
  explicit World(ApiOptions chosen = {}) : options(std::move(chosen)), access(options, engine) {}

  Result<Principal> identify(std::string_view token) const {
    const std::string header = token.empty() ? "" : str("Bearer ", token);
    return access.identify(
        {.method = "GET", .target = "/", .content_type = "", .body = "", .authorization = header});
  }

  ManualClock clock;
  MemoryEngine engine{{}, clock};
  const ApiOptions options;
  Access access;
};

ApiRequest request_for(std::string_view host, std::string_view origin) {
  return {.method = "GET",
          .target = "/",
          .content_type = "",
          .body = "",
          .client = "127.0.0.1",
          .host = host,
          .origin = origin};
}

TEST_CASE("every sender is an administrator until there is a token") {
  World world;
  const Result<Principal> principal = world.identify({});
  REQUIRE(principal);
  CHECK(principal->token_id.empty());
  CHECK(principal->may(Role::kAdmin, "*").ok());

  const NewToken token = make_token(Role::kAdmin, "*", "", 0, 0);
  REQUIRE(world.engine.submit(PutTokenCommand{token.record}).status.ok());
  CHECK(world.identify({}).status().code() == Code::kUnauthenticated);
  CHECK(world.identify(token.text)->token_id == token.record.id);
}

TEST_CASE("a server that requires a token refuses requests without one") {
  ApiOptions options;
  options.require_token = true;
  CHECK(World(options).identify({}).status().code() == Code::kUnauthenticated);
}

TEST_CASE("the token of the command line can be replaced, and the old one is refused then") {
  const NewToken first = make_token(Role::kAdmin, "*", "", 0, 0);
  const NewToken second = make_token(Role::kAdmin, "*", "", 0, 0);
  ApiOptions options;
  options.admin_token = first.record;
  World world(options);
  CHECK(world.identify(first.text)->token_id == first.record.id);
  world.access.set_admin_token(second.record);
  CHECK(world.identify(first.text).status().code() == Code::kUnauthenticated);
  CHECK(world.identify(second.text)->token_id == second.record.id);
  CHECK(world.access.admin_tokens()->size() == 1);
}

TEST_CASE("a token has so many requests at once, and a sender without one is not counted") {
  ApiOptions options;
  options.requests_per_second_of_token = 1;
  World world(options);
  const Principal bearer{"token-1", Role::kJoin, "a"};
  std::size_t taken = 0;
  while (taken < 100 && world.access.take_turn(bearer).ok()) ++taken;
  CHECK(taken < 100);
  CHECK(world.access.take_turn(bearer).code() == Code::kResourceExhausted);
  CHECK(world.access.take_turn({"token-2", Role::kJoin, "a"}).ok());
  for (int i = 0; i < 100; ++i) REQUIRE(world.access.take_turn({}).ok());
}

TEST_CASE("without tokens only names of this machine are accepted, if so configured") {
  ApiOptions options;
  options.only_loopback_names = true;
  World world(options);
  CHECK(world.access.check_names(request_for("localhost:80", ""), false).ok());
  CHECK(world.access.check_names(request_for("[::1]", "http://127.0.0.1"), false).ok());
  CHECK(world.access.check_names(request_for("", ""), false).code() == Code::kInvalidArgument);
  CHECK(world.access.check_names(request_for("a.example", ""), true).code() == Code::kPermissionDenied);
  CHECK(world.access.check_names(request_for("localhost", "http://a.example"), true).code() ==
        Code::kPermissionDenied);
  // A request without a client address comes from this process.
  CHECK(world.access
            .check_names(
                {.method = "GET", .target = "/", .content_type = "", .body = "", .host = "a.example"}, false)
            .ok());
  CHECK(World().access.check_names(request_for("a.example", ""), false).ok());

  REQUIRE(world.engine.submit(PutTokenCommand{make_token(Role::kAdmin, "*", "", 0, 0).record}).status.ok());
  CHECK(world.access.check_names(request_for("a.example", ""), true).ok());
}

}  // namespace
}  // namespace slime::ctrl::access_test
