#include <array>
#include <cctype>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/ctrl/every_route.h"
#include "tests/support/files.h"

// Every route over a real socket: permissions, and malformed requests.
namespace slime::ctrl::every_route_test {
namespace {

using test::Answer;
using test::every_route;
using test::has;
using test::HttpServer;
using test::Json;
using test::Needs;
using test::RawConnection;
using test::request;
using test::RouteCase;
using test::World;

constexpr std::size_t kLevels = 100'000;
constexpr std::size_t kLargeBody = 10'000'000;

struct Fixture {
  HttpServer http{test::with_root()};
  World world{http.server->port()};
  const std::vector<RouteCase> routes = every_route(world);
};

// Returns whether an error has the native form, or NanoCtrl's.
bool is_error(const Answer& answer, int status, bool compat) {
  const Json json = answer.json();
  if (answer.status != status || !json.is_object() || !has(answer.raw, "Content-Type: application/json"))
    return false;
  if (compat) return json.size() == 2 && json.at("status") == "error" && json.at("message").is_string();
  return json.size() == 3 && json.at("code").is_string() && json.at("message").is_string() &&
         json.at("hint").is_string();
}
bool is_error(const Answer& answer, int status, const RouteCase& of) {
  return is_error(answer, status, of.compat);
}

Answer ask_with(World& world, const RouteCase& route, const std::string& body) {
  const bool join = route.needs <= Needs::kJoin;  // objects of NanoCtrl's routes belong to the
                                                  // member's token
  return world.ask(request(route.method, route.target, join ? world.member : world.admin, &body));
}

TEST_CASE("the table of this test has every route of the server, and no other") {
  std::multiset<std::string> served;
  for (const Route& route : all_routes()) served.insert(str(route.method, " ", route.path));
  const Fixture f;
  std::multiset<std::string> tested;
  for (const RouteCase& route : f.routes) tested.insert(route.name());
  CHECK(served == tested);
}

TEST_CASE("the fuzzer of requests begins with one of each route") {
  for (const Route& route : all_routes()) {
    std::string name = "route_";
    for (const char c : str(route.method, " ", route.path)) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0)
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      else if (name.back() != '_')
        name += '_';
    }
    if (name.back() == '_') name.pop_back();
    CAPTURE(name);
    std::ifstream file(slime::test::source_file(str("tests/fuzz/corpus/front/", name)));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    REQUIRE(text.size() > 1);
    // The first byte is for the fuzzer.
    CHECK(text.substr(1).starts_with(str(route.method, " ", route.path.substr(0, route.path.find('{')))));
  }
}

TEST_CASE("no token, wrong ones, one of another scope, one of too small a role, one that is enough") {
  Fixture f;
  World& world = f.world;
  // In the order of Needs: each token suffices for its place and the earlier ones.
  const std::array<std::string, 6> enough = {"",           world.reader, world.reader,
                                             world.member, world.owner,  world.admin};
  for (const RouteCase& route : f.routes) {
    CAPTURE(route.name());
    if (route.needs != Needs::kNothing) {
      CHECK(is_error(world.ask(request(route, "")), 401, route));
      CHECK(is_error(world.ask(request(route, world.wrong)), 401, route));
      CHECK(is_error(world.ask(request(route, "slime-")), 401, route));
      CHECK(is_error(world.ask(request(route, "\xff\xfe")), 401, route));
    }
    // Lists of tokens show the sender's scope only, so another scope's token is not found.
    if (route.needs >= Needs::kRead && route.path == "/v1/tokens/{id}")
      CHECK(is_error(world.ask(request(route, world.stranger)), 404, route));
    else if (route.needs >= Needs::kRead && route.name() != "GET /v1/tokens")
      CHECK(is_error(world.ask(request(route, world.stranger)), 403, route));
    for (auto role = static_cast<std::size_t>(Needs::kRead); role < static_cast<std::size_t>(route.needs);
         ++role)
      CHECK(is_error(world.ask(request(route, enough[role])), 403, route));
    if (route.compat && route.body.contains("scope")) {
      Json of_default = route.body;
      of_default.erase("scope");
      const std::string body = of_default.dump();
      CHECK(is_error(world.ask(request(route.method, route.target, world.member, &body)), 403, route));
    }
    const Answer answer = world.ask(request(route, enough[static_cast<std::size_t>(route.needs)]));
    CHECK_MESSAGE(answer.status == 200, answer.raw);
  }
}

TEST_CASE("a body of 10 MB is refused before it is read, and its connection is closed") {
  Fixture f;
  const std::string body(kLargeBody, ' ');
  for (const RouteCase& route : f.routes) {
    CAPTURE(route.name());
    const std::string answer = f.http.exchange(request(route.method, route.target, f.world.admin, &body));
    CHECK(is_error(test::to_answer(answer), 413, false));
    CHECK(has(answer, "Connection: close"));
  }
}

TEST_CASE("a body in chunks is refused, and its connection is closed") {
  Fixture f;
  for (const RouteCase& route : f.routes) {
    CAPTURE(route.name());
    const std::string answer = f.http.exchange(
        request(route.method, route.target, f.world.admin, nullptr, "Transfer-Encoding: chunked\r\n") +
        "1\r\n{\r\n");
    CHECK(is_error(test::to_answer(answer), 411, false));
    CHECK(has(answer, "Connection: close"));
  }
}

TEST_CASE("a body that is not a JSON object of UTF-8, or nests 100,000 deep, is refused") {
  Fixture f;
  std::string closed = std::string(kLevels, '[') + std::string(kLevels, ']');
  std::string members;
  for (std::size_t i = 0; i < kLevels; ++i) members += "{\"a\":";
  const std::vector<std::string> bodies = {"\xff",
                                           "{\"a\":\"\xff\"}",
                                           "{\"a\":\"\xed\xa0\x80\"}",
                                           "{\"\xc0\xaf\":1}",
                                           R"({"a":"\ud800"})",
                                           "[]",
                                           "1",
                                           "\"x\"",
                                           "null",
                                           "{",
                                           "{}x",
                                           std::string(kLevels, '['),
                                           closed,
                                           str("{\"metadata\":", closed, "}"),
                                           members};
  for (const RouteCase& route : f.routes) {
    if (!route.has_body()) continue;
    CAPTURE(route.name());
    for (const std::string& body : bodies) {
      CAPTURE(body.substr(0, 20));
      CHECK(is_error(ask_with(f.world, route, body), 400, route));
    }
    if (route.path != "/get_redis_address") CHECK(is_error(ask_with(f.world, route, ""), 400, route));
  }
}

TEST_CASE("a target that is not UTF-8, or has a bad escape, is refused") {
  Fixture f;
  for (const RouteCase& route : f.routes) {
    CAPTURE(route.name());
    const std::string path = route.target.substr(0, route.target.find('?'));
    const std::string body = route.body.dump();
    for (const char* query :
         {"?scope=%FF", "?%FF=1", "?after=%ED%A0%80", "?kind=\xff", "?scope=%C0%AF", "?scope=%f", "?=%zz"}) {
      CAPTURE(query);
      const Answer answer = f.world.ask(request(route.method, path + query, f.world.admin, &body));
      CHECK(is_error(answer, 400, false));
    }
    for (const char* part : {"/%FF", "\xff", "/%"}) {
      const Answer answer = f.world.ask(request(route.method, path + part, f.world.admin, &body));
      CHECK(is_error(answer, 400, false));
    }
  }
}

TEST_CASE("an unknown query parameter is refused, and so is one that comes twice") {
  Fixture f;
  for (const RouteCase& route : f.routes) {
    CAPTURE(route.name());
    const char joint = route.target.find('?') == std::string::npos ? '?' : '&';
    const std::string body = route.body.dump();
    const auto ask = [&](const std::string& more) {
      return f.world.ask(request(route.method, str(route.target, joint, more), f.world.admin,
                                 route.body.is_null() ? nullptr : &body));
    };
    CHECK(is_error(ask("nonsense=1"), 400, route));
    if (joint == '&') CHECK(is_error(ask("scope=a"), 400, route));
  }
}

// Calls fn with copies of the body, in each of which one value has a wrong type.
template <class Fn>
void with_wrong_types(const RouteCase& route, const Fn& fn) {
  const std::vector<Json> others = {nullptr,       true,           -1,  1.5,  "\x01",
                                    Json::array(), Json::object(), {1}, 1e300};
  std::set<std::string> places;
  const Json flat = route.body.flatten();
  for (auto it = flat.begin(); it != flat.end(); ++it) {
    for (Json::json_pointer at(it.key()); !at.empty(); at = at.parent_pointer())
      places.insert(at.to_string());
  }
  for (const std::string& place : places) {
    const Json::json_pointer at(place);
    std::string member = place.substr(1);
    member.resize(std::min(member.find('/'), member.size()));
    if (std::find(route.free.begin(), route.free.end(), member) != route.free.end()) continue;
    const Json& right = route.body.at(at);
    for (const Json& other : others) {
      const bool same = right.type() == other.type() && other != Json({1});
      // For NanoCtrl's clients null means absent.
      if (same || (route.compat && other.is_null())) continue;
      Json body = route.body;
      body[at] = other;
      fn(place, body);
    }
  }
}

TEST_CASE("a value of a wrong type is refused wherever it is") {
  Fixture f;
  for (const RouteCase& route : f.routes) {
    if (route.body.is_null()) continue;
    CAPTURE(route.name());
    with_wrong_types(route, [&](const std::string& place, const Json& body) {
      CAPTURE(place);
      CAPTURE(body.dump());
      CHECK(is_error(ask_with(f.world, route, body.dump()), 400, route));
    });
  }
}

TEST_CASE("a query parameter without a value is refused where a value must be something") {
  Fixture f;
  for (const char* target :
       {"/v1/peers?scope=", "/v1/peers?limit=", "/v1/watch?since=", "/v1/watch?since=1&wait_ms=",
        "/v1/services?health=", "/v1/peers?scope", "/v1/links?limit="}) {
    CAPTURE(target);
    CHECK(is_error(f.world.ask(request("GET", target, f.world.admin, nullptr)), 400, false));
  }
  for (const char* target :
       {"/v1/peers?kind=", "/v1/peers?after=", "/v1/peers?labels=", "/v1/services?name="}) {
    CAPTURE(target);
    CHECK(f.world.ask(request("GET", target, f.world.admin, nullptr)).status == 200);
  }
}

TEST_CASE("an invalid name is refused, also where it would do no harm") {
  Fixture f;
  const Json ref = {{"name", "a b"}, {"incarnation", 1}};
  const Json update = {{"incarnation", f.world.incarnation}, {"unpublish", {"a b"}}};
  const std::pair<const char*, Json> requests[] = {{"/v1/heartbeats?scope=a", {{"peers", {ref}}}},
                                                   {"/v1/peers/w/regions?scope=a", update},
                                                   {"/v1/peers/w/services?scope=a", update}};
  for (const auto& [target, json] : requests) {
    const std::string body = json.dump();
    CHECK(is_error(f.world.ask(request("POST", target, f.world.admin, &body)), 400, false));
  }
}

TEST_CASE("7.0 is an integer, as JSON Schema says, and 7.5 is none") {
  Fixture f;
  const auto status = [&](const std::string& number) {
    const std::string body = str(R"({"peers":[],"since":)", number, "}");
    return f.world.ask(request("POST", "/v1/heartbeats?scope=a", f.world.admin, &body)).status;
  };
  for (const char* good : {"7", "7.0", "7e0", "70e-1", "9007199254740991.0", "0.0"})
    CHECK(status(good) == 200);
  for (const char* bad : {"7.5", "-7.0", "9007199254740992.0", "1e300", "-1e-300"}) CHECK(status(bad) == 400);
}

TEST_CASE("what is published is looked at before the incarnation is") {
  Fixture f;
  const Json region = {{"name", "a b"}, {"length_bytes", 1}, {"rights", "read"}};
  const std::pair<const char*, Json> requests[] = {
      {"/v1/peers/w/regions?scope=a", {{"incarnation", 1}, {"publish", {region}}}},
      {"/v1/peers/w/services?scope=a", {{"incarnation", 1}, {"publish", {{{"name", "a b"}}}}}}};
  for (const auto& [target, json] : requests) {
    const std::string body = json.dump();
    CHECK(is_error(f.world.ask(request("POST", target, f.world.admin, &body)), 400, false));
  }
}

TEST_CASE("another method is 405 with the allowed methods, and another type of body is 415") {
  Fixture f;
  std::set<std::string> allowed;
  for (const RouteCase& route : f.routes) allowed.insert(route.name());
  for (const RouteCase& route : f.routes) {
    CAPTURE(route.name());
    for (const char* method : {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY", "get"}) {
      if (allowed.contains(str(method, " ", route.path))) continue;
      CAPTURE(method);
      const std::string body = "{}";
      const Answer answer =
          test::to_answer(f.http.exchange(request(method, route.target, f.world.admin, &body, test::kClose)));
      CHECK(is_error(answer, 405, route));
      const std::size_t at = answer.raw.find("Allow: ");
      REQUIRE(at != std::string::npos);
      const std::string allow = answer.raw.substr(at, answer.raw.find("\r\n", at) - at);
      CHECK(has(allow, route.method));
      CHECK_FALSE(has(allow, method));
    }
    if (!route.has_body()) continue;
    for (const char* type : {"", "Content-Type: text/plain\r\n", "Content-Type: application/jsonx\r\n"}) {
      CAPTURE(type);
      const Answer answer = f.world.ask(
          request(route.method, route.target, f.world.admin, nullptr, str(type, "Content-Length: 2\r\n")) +
          "{}");
      CHECK(is_error(answer, 415, route));
    }
  }
}

TEST_CASE("an unknown route is 404 with a token, and 401 without") {
  Fixture f;
  for (const char* target :
       {"/nothing", "/v1", "/v1/", "/v1/nothing", "/v1/peers/w/nothing", "/v1/peers/w/links/x",
        "/v1/tokens/a/b", "/healthz/", "//", "/v1/desired_topology"}) {
    CAPTURE(target);
    CHECK(is_error(f.world.ask(request("GET", target, f.world.admin, nullptr)), 404, false));
    CHECK(is_error(f.world.ask(request("GET", target, "", nullptr)), 401, false));
  }
}

}  // namespace
}  // namespace slime::ctrl::every_route_test
