#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ctrl/api/auth.h"
#include "tests/ctrl/raw_http.h"
#include "tests/ctrl/samples.h"

// A request for each of nanoctrl's routes, with the permission that the route needs. A new route
// needs a line in every_route(); a test checks this.
namespace slime::ctrl::test {

using Json = nlohmann::json;

// The permission that a route needs. Each permission includes the earlier ones.
enum class Needs { kNothing, kAnyToken, kRead, kJoin, kAdmin, kAdminOfAll };

struct RouteCase {
  std::string method;
  std::string path;    // as in all_routes()
  std::string target;  // an instance of `path`, in scope "a"
  Needs needs = Needs::kRead;
  Json body = nullptr;                 // null: no body
  bool compat = false;                 // a NanoCtrl route: errors look like NanoCtrl's
  std::vector<std::string> free = {};  // members of the body that accept any value
  bool owned = false;                  // without a body: the session is in a header

  [[nodiscard]] bool has_body() const { return method == "POST" || method == "PUT"; }
  [[nodiscard]] std::string name() const { return method + " " + path; }
};

struct Answer {
  int status = 0;
  std::string raw;
  std::string body;
  // Returns null if the body is not JSON.
  [[nodiscard]] Json json() const {
    Json out = Json::parse(body, nullptr, false);
    return out.is_discarded() ? Json() : out;
  }
};

inline Answer to_answer(std::string raw) {
  Answer out;
  REQUIRE_MESSAGE(raw.starts_with("HTTP/1.1 "), raw.substr(0, 200));
  out.status = std::stoi(raw.substr(9, 3));
  out.body = raw.substr(raw.find("\r\n\r\n") + 4);
  out.raw = std::move(raw);
  return out;
}

inline std::string bearer(std::string_view token) {
  return token.empty() ? "" : str("Authorization: Bearer ", token, "\r\n");
}
// Returns a complete request. Each of `headers` includes its line end.
inline std::string request(std::string_view method, std::string_view target, std::string_view token,
                           const std::string* body, std::string_view headers = {}) {
  std::string out = str(method, " ", target, " HTTP/1.1\r\nHost: localhost\r\n", bearer(token), headers);
  if (body == nullptr) return out + "\r\n";
  return out + str("Content-Type: application/json\r\nContent-Length: ", body->size(), "\r\n\r\n", *body);
}
inline std::string request(const RouteCase& of, std::string_view token) {
  const std::string body = of.body.dump();
  return request(of.method, of.target, token, of.body.is_null() ? nullptr : &body,
                 of.owned ? str("Slime-Session: ", kSession, "\r\n") : std::string());
}

// A connection that carries one request after another.
class Asker {
 public:
  explicit Asker(std::uint16_t port) : connection_(port) {}
  Answer operator()(const std::string& request) {
    connection_.send(request);
    return to_answer(connection_.read_reply());
  }

 private:
  RawConnection connection_;
};

// The administrator's token of the server's command line, with which World makes the other tokens.
inline constexpr const char* kRoot =
    "slime-00000000000000ad-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
inline ServerOptions with_root() {
  ServerOptions options = small_server();
  options.api.admin_token = *record_of(kRoot, Role::kAdmin, "*");
  return options;
}

// Tokens of every kind, and an object for each route: peer "w", and agent "old" and service "s" of
// NanoCtrl's routes, all in scope "a". The server has kRoot.
struct World {
  explicit World(std::uint16_t at) : port(at), ask(at) {
    admin = make_token(kRoot, "admin", "*");
    reader = make_token(admin, "read", "a");
    member = make_token(admin, "join", "a");
    owner = make_token(admin, "admin", "a");
    stranger = make_token(admin, "admin", "b");
    wrong = admin;
    wrong.back() = wrong.back() == '0' ? '1' : '0';
    spare = post("/v1/tokens", {{"role", "read"}, {"scope", "a"}}).at("id");
    const Json lease = post("/v1/peers", {{"name", "w"},
                                          {"scope", "a"},
                                          {"instance", "00000000000000000000000000000001"},
                                          {"session", kSession},
                                          {"address", "127.0.0.1:1"}});
    incarnation = lease.at("incarnation");
    // Objects made by these routes belong to the token.
    post("/start_peer_agent", {{"alias", "old"}, {"scope", "a"}, {"address", "h:1"}}, member);
    post("/register", {{"entity_id", "s"}, {"scope", "a"}, {"kind", "k"}}, member);
  }
  Json post(const std::string& target, const Json& body) { return post(target, body, admin); }
  Json post(const std::string& target, const Json& body, const std::string& token) {
    const std::string text = body.dump();
    const Answer answer = ask(request("POST", target, token, &text));
    REQUIRE_MESSAGE(answer.status == 200, answer.raw);
    return answer.json();
  }
  std::string make_token(const std::string& by, const std::string& role, const std::string& scope) {
    const std::string text = Json{{"role", role}, {"scope", scope}}.dump();
    return ask(request("POST", "/v1/tokens", by, &text)).json().at("token");
  }

  const std::uint16_t port;
  Asker ask;
  std::string admin, reader, member, owner, stranger, wrong;
  std::string spare;  // id of a token that may be revoked
  std::uint64_t incarnation = 0;
};

inline std::vector<RouteCase> native_routes(const World& world) {
  const std::uint64_t mine = world.incarnation;
  const Json service = {{"name", "calc"},
                        {"kind", "math"},
                        {"methods", {"add"}},
                        {"health", "serving"},
                        {"labels", {{"model", "m"}}}};
  const Json region = {{"name", "kv"}, {"length_bytes", 64}, {"rights", "read"}};
  const Json link = {{"peer", "x"},         {"provider", "tcp"}, {"state", "ready"}, {"sent_bytes", 1},
                     {"received_bytes", 2}, {"direct_bytes", 3}, {"calls", 4}};
  return {
      {"GET", "/healthz", "/healthz", Needs::kNothing},
      {"GET", "/readyz", "/readyz", Needs::kNothing},
      {"GET", "/v1/openapi.json", "/v1/openapi.json", Needs::kNothing},
      {"GET", "/ui", "/ui", Needs::kNothing},
      {"GET", "/ui/{file}", "/ui/page.js", Needs::kNothing},
      {"GET", "/metrics", "/metrics", Needs::kAdminOfAll},
      {"GET", "/v1/peers", "/v1/peers?scope=a", Needs::kRead},
      {"GET", "/v1/peers/{name}", "/v1/peers/w?scope=a", Needs::kRead},
      {"GET", "/v1/peers/{name}/links", "/v1/peers/w/links?scope=a", Needs::kRead},
      {"GET", "/v1/services", "/v1/services?scope=a", Needs::kRead},
      {"GET", "/v1/regions", "/v1/regions?scope=a", Needs::kRead},
      {"GET", "/v1/links", "/v1/links?scope=a", Needs::kRead},
      {"GET", "/v1/watch", "/v1/watch?scope=a&since=1", Needs::kRead},
      {"GET", "/v1/scopes", "/v1/scopes", Needs::kAnyToken},
      {"GET", "/v1/status", "/v1/status", Needs::kAnyToken},
      {"GET", "/v1/backup", "/v1/backup", Needs::kAdminOfAll},
      {"GET", "/v1/tokens", "/v1/tokens", Needs::kAdmin},
      {"POST",
       "/v1/tokens",
       "/v1/tokens",
       Needs::kAdmin,
       {{"role", "read"}, {"scope", "a"}, {"note", "n"}, {"expires_in_s", 60}}},
      {"POST",
       "/v1/peers",
       "/v1/peers",
       Needs::kJoin,
       {{"name", "w"},
        {"scope", "a"},
        {"instance", "00000000000000000000000000000001"},
        {"address", "127.0.0.1:1"},
        {"kind", "worker"},
        {"providers", {"tcp"}},
        {"metadata", {{"gpu", "0"}}},
        {"ttl_ms", 600000},
        {"takeover", false},
        {"session", kSession},
        {"services", {service}},
        {"regions", {region}}}},
      {"POST",
       "/v1/peers/{name}/heartbeat",
       "/v1/peers/w/heartbeat?scope=a",
       Needs::kJoin,
       {{"incarnation", mine},
        {"session", kSession},
        {"since", 1},
        {"keys_have", 1},
        {"report", {{"links", {link}}, {"counters", {{"calls", 1}}}}}}},
      {"POST",
       "/v1/heartbeats",
       "/v1/heartbeats?scope=a",
       Needs::kJoin,
       {{"since", 1}, {"peers", {{{"name", "w"}, {"incarnation", mine}, {"session", kSession}}}}}},
      {"POST",
       "/v1/peers/{name}/regions",
       "/v1/peers/w/regions?scope=a",
       Needs::kJoin,
       {{"incarnation", mine}, {"session", kSession}, {"publish", {region}}, {"unpublish", {"x"}}}},
      {"PUT",
       "/v1/peers/{name}/regions",
       "/v1/peers/w/regions?scope=a",
       Needs::kJoin,
       {{"incarnation", mine}, {"session", kSession}, {"regions", {region}}}},
      {"POST",
       "/v1/peers/{name}/services",
       "/v1/peers/w/services?scope=a",
       Needs::kJoin,
       {{"incarnation", mine}, {"session", kSession}, {"publish", {service}}, {"unpublish", {"x"}}}},
      {"PUT",
       "/v1/peers/{name}/services",
       "/v1/peers/w/services?scope=a",
       Needs::kJoin,
       {{"incarnation", mine}, {"session", kSession}, {"services", {service}}}},
      {"PUT",
       "/v1/peers/{name}/links",
       "/v1/peers/w/links?scope=a",
       Needs::kJoin,
       {{"targets", {"x"}}, {"session", kSession}}},
      {"DELETE", "/v1/tokens/{id}", str("/v1/tokens/", world.spare), Needs::kAdmin},
      {"DELETE",
       "/v1/peers/{name}",
       str("/v1/peers/w?scope=a&incarnation=", mine),
       Needs::kJoin,
       nullptr,
       false,
       {},
       true},
  };
}

inline std::vector<RouteCase> compat_routes() {
  const auto of = [](const std::string& path, Needs needs, Json body, std::vector<std::string> free = {}) {
    if (needs != Needs::kAnyToken) body["scope"] = "a";
    return RouteCase{"POST", path, path, needs, std::move(body), true, std::move(free)};
  };
  const Json service = {{"entity_type", "service"}, {"entity_id", "s"}};
  std::vector<RouteCase> out = {
      {"GET", "/", "/", Needs::kNothing, nullptr, true},
      of("/start_peer_agent", Needs::kJoin,
         {{"alias", "new"},
          {"name_prefix", "p"},
          {"address", "h:1"},
          {"device", "d"},
          {"ib_port", 1},
          {"link_type", "l"},
          {"resource", {{"gpus", 1}}}},
         {"resource"}),
      of("/query", Needs::kRead, Json::object()),
      of("/register_mr", Needs::kJoin,
         {{"agent_name", "old"}, {"mr_name", "m"}, {"addr", 1}, {"length", 1}, {"rkey", 1}, {"lkey", 1}}),
      of("/get_mr_info", Needs::kRead, {{"src", "x"}, {"dst", "old"}, {"mr_name", "m"}}, {"src"}),
      of("/v1/desired_topology/{agent_id}", Needs::kJoin,
         {{"target_peers", {"x"}}, {"min_bw", "1"}, {"symmetric", true}}, {"min_bw", "symmetric"}),
      of("/register", Needs::kJoin,
         {{"entity_type", "service"},
          {"entity_id", "s"},
          {"kind", "k"},
          {"endpoint", {{"port", 1}}},
          {"metadata", {{"m", 1}}},
          {"resource", {{"r", 1}}}},
         {"endpoint", "metadata", "resource"}),
      of("/heartbeat", Needs::kJoin, service),
      of("/get_entity_info", Needs::kRead, service),
      of("/list_entities", Needs::kRead, {{"entity_type", "service"}, {"kind", "k"}}),
      of("/get_redis_address", Needs::kAnyToken, Json::object()),
      of("/unregister", Needs::kJoin, service),
      of("/cleanup", Needs::kJoin, {{"agent_name", "old"}}),
  };
  for (RouteCase& one : out) {
    if (one.path.ends_with("{agent_id}")) one.target = "/v1/desired_topology/old";
  }
  return out;
}

// Routes that remove something come last.
inline std::vector<RouteCase> every_route(const World& world) {
  std::vector<RouteCase> out = compat_routes();
  for (RouteCase& one : native_routes(world)) out.push_back(std::move(one));
  return out;
}

}  // namespace slime::ctrl::test
