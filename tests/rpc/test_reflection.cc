#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rpc/reflection.h"
#include "rpc/server.h"
#include "rpc/type_names.h"
#include "tests/rpc/server_caller.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace reflection_test {
namespace {

struct Point {
  int x = 0;
  int y = 0;
  MSGPACK_DEFINE_MAP(x, y)
};
// A container by its looks, a map by its definition.
struct Bag : std::vector<int> {
  int more = 0;
  MSGPACK_DEFINE_MAP(more)
};
enum class Color { kRed };

MethodInfo method_of(Server& server, const std::string& service, const std::string& method) {
  const auto info = value<ServiceInfo>(call(server, std::string(kReflectionService), "service", service));
  for (const MethodInfo& each : info.methods) {
    if (each.name == method) return each;
  }
  FAIL("no method ", method);
  return {};
}

// "(a: int, str, *: any) -> bool"
std::string text_of(const MethodInfo& method) {
  std::string out = "(";
  for (const ParameterInfo& parameter : method.parameters) {
    if (out.size() > 1) out += ", ";
    if (parameter.rest) out += "*";
    out += parameter.name;
    if (parameter.rest || !parameter.name.empty()) out += ": ";
    out += parameter.type;
    if (parameter.optional) out += "?";
  }
  return out + ") -> " + method.result;
}

// What reflection says of a function.
template <class F>
std::string told_of(F handler, MethodOptions options = {}) {
  Server server;
  Service service("s");
  const Status added = service.add("m", std::move(handler), std::move(options));
  REQUIRE_MESSAGE(added.ok(), added.to_string());
  REQUIRE(server.add(service).ok());
  return text_of(method_of(server, "s", "m"));
}

std::vector<std::string> names_of(Server& server) {
  std::vector<std::string> out;
  for (const ServiceInfo& service :
       value<std::vector<ServiceInfo>>(call(server, std::string(kReflectionService), "services")))
    out.push_back(service.name);
  return out;
}

std::string health(Server& server, const std::string& service) {
  return value<std::string>(call(server, std::string(kHealthService), "check", service));
}

int plain(int a, const std::string& b) { return a + static_cast<int>(b.size()); }

}  // namespace

TEST_CASE("types have the names of the wire") {
  CHECK(wire_type<bool>() == "bool");
  CHECK(wire_type<std::int8_t>() == "int");
  CHECK(wire_type<std::uint64_t>() == "int");
  CHECK(wire_type<char>() == "int");
  CHECK(wire_type<Color>() == "int");
  CHECK(wire_type<float>() == "float");
  CHECK(wire_type<double>() == "float");
  CHECK(wire_type<std::string>() == "str");
  CHECK(wire_type<std::string_view>() == "str");
  CHECK(wire_type<const char*>() == "str");
  CHECK(wire_type<ByteVector>() == "bytes");
  CHECK(wire_type<Bytes>() == "bytes");
  CHECK(wire_type<Attachment>() == "bytes");
  CHECK(wire_type<std::vector<Attachment>>() == "list[bytes]");
  CHECK(wire_type<std::vector<char>>() == "bytes");
  CHECK(wire_type<std::vector<std::uint8_t>>() == "bytes");
  CHECK(wire_type<std::array<std::byte, 4>>() == "bytes");
  CHECK(wire_type<std::vector<std::int8_t>>() == "list[int]");
  CHECK(wire_type<std::vector<bool>>() == "list[bool]");
  CHECK(wire_type<std::deque<char>>() == "list[int]");
  CHECK(wire_type<std::set<std::string>>() == "list[str]");
  CHECK(wire_type<std::array<double, 3>>() == "list[float]");
  CHECK(wire_type<std::map<std::string, std::vector<int>>>() == "map[str, list[int]]");
  CHECK(wire_type<std::unordered_map<int, ByteVector>>() == "map[int, bytes]");
  CHECK(wire_type<std::optional<std::string>>() == "optional[str]");
  CHECK(wire_type<std::unique_ptr<int>>() == "optional[int]");
  CHECK(wire_type<std::tuple<int, std::string, Point>>() == "tuple[int, str, any]");
  CHECK(wire_type<std::pair<bool, double>>() == "tuple[bool, float]");
  CHECK(wire_type<std::tuple<>>() == "tuple[]");
  CHECK(wire_type<None>() == "none");
  CHECK(wire_type<void>() == "none");
  CHECK(wire_type<Point>() == "any");
  CHECK(wire_type<std::vector<Point>>() == "list[any]");
  CHECK(wire_type<Bag>() == "any");
}

TEST_CASE("reflection tells the parameters and the result of plain functions") {
  CHECK(told_of(plain) == "(int, str) -> int");
  CHECK(told_of([] {}) == "() -> none");
  CHECK(told_of([](bool) { return Status(); }) == "(bool) -> none");
  CHECK(told_of([](double a) -> Result<double> { return a; }) == "(float) -> float");
  CHECK(told_of([](const ByteVector&) -> Result<None> { return None{}; }) == "(bytes) -> none");
  CHECK(told_of([](const std::vector<std::string>& parts) -> std::map<std::string, Point> {
          return {{parts.at(0), {}}};
        }) == "(list[str]) -> map[str, any]");
  CHECK(told_of([](std::optional<int> a) { return a; }) == "(optional[int]) -> optional[int]");
}

TEST_CASE("the call's info is no parameter") {
  CHECK(told_of([](const CallInfo&) { return 1; }) == "() -> int");
  CHECK(told_of([](const CallInfo&, int) { return 1; }, {.parameters = {"only"}}) == "(only: int) -> int");
}

TEST_CASE("reflection tells the names of parameters and what the method is for, where these are given") {
  Server server;
  Service service("s");
  REQUIRE(service.add("named", plain, {.parameters = {"count", "größe"}, .doc = "Adds.\nA lot."}).ok());
  REQUIRE(service.add("bare", plain).ok());
  REQUIRE(server.add(service).ok());
  const MethodInfo named = method_of(server, "s", "named");
  CHECK(text_of(named) == "(count: int, größe: str) -> int");
  CHECK(named.doc == "Adds.\nA lot.");
  CHECK(method_of(server, "s", "bare").doc.empty());
}

TEST_CASE("raw handlers tell what they were told to") {
  Server server;
  Service service("s");
  const auto handler = [](Request request) { request.reply(encode_value(1)); };
  REQUIRE(service.add_raw("anything", handler).ok());
  REQUIRE(service.add_raw("named", handler, {.parameters = {"key", "value"}}).ok());
  const MethodInfo told{
      .name = "ignored",
      .parameters = {{.name = "key", .type = "str"}, {.name = "size", .type = "int", .optional = true}},
      .result = "bytes",
      .doc = "Reads."};
  REQUIRE(service.add_raw("told", handler, Run::kInline, told).ok());
  REQUIRE(server.add(service).ok());
  CHECK(text_of(method_of(server, "s", "anything")) == "(*: any) -> any");
  CHECK(text_of(method_of(server, "s", "named")) == "(key: any, value: any) -> any");
  CHECK(text_of(method_of(server, "s", "told")) == "(key: str, size: int?) -> bytes");
  CHECK(method_of(server, "s", "told").doc == "Reads.");
}

TEST_CASE("a method is refused when what is told of it cannot be") {
  Service service("s");
  const Status few = service.add("m", plain, {.parameters = {"one"}});
  CHECK(few.code() == Code::kInvalidArgument);
  CHECK(few.text() == "method 'm' takes 2 arguments, but the names of 1 are given");
  CHECK(service.add("m", plain, {.parameters = {"a", "b\n"}}).code() == Code::kInvalidArgument);
  CHECK(service.add("m", plain, {.doc = "\xc3\x28"}).code() == Code::kInvalidArgument);
  CHECK(service.methods().empty());
}

TEST_CASE("reflection lists what is served now, the server's own services among it") {
  Server server;
  CHECK(names_of(server) == std::vector<std::string>{"slime.Health", "slime.Reflection"});
  Service service("calc");
  REQUIRE(service.add("add", plain).ok());
  REQUIRE(server.add(service).ok());
  CHECK(names_of(server) == std::vector<std::string>{"calc", "slime.Health", "slime.Reflection"});
  CHECK(text_of(method_of(server, "slime.Health", "check")) == "(service: str) -> str");
  CHECK(text_of(method_of(server, "slime.Reflection", "services")) == "() -> list[any]");
  REQUIRE(server.remove("calc").ok());
  CHECK(names_of(server) == std::vector<std::string>{"slime.Health", "slime.Reflection"});
  const Status gone = call(server, "slime.Reflection", "service", "calc").status();
  CHECK(gone.code() == Code::kNotFound);
  CHECK(gone.text() == "no service 'calc'");
}

TEST_CASE("what reflection sends are maps with the documented keys") {
  Server server;
  Service service("c");
  REQUIRE(service.add("m", [](int) {}, {.parameters = {"a"}, .doc = "d"}).ok());
  REQUIRE(server.add(service).ok());
  const Answer reply = call(server, "slime.Reflection", "service", "c");
  REQUIRE(reply.has_value());
  // {"name": "c", "methods": [{"name": "m", "parameters": [{"name": "a", "type": "int", "optional":
  // false,
  //  "rest": false}], "result": "none", "doc": "d", "reads": "", "writes": ""}]}
  CHECK(as_text(*reply) ==
        "\x82\xa4name\xa1"
        "c\xa7methods\x91\x86\xa4name\xa1m\xaaparameters\x91\x84\xa4name\xa1"
        "a\xa4type\xa3int\xa8optional\xc2\xa4rest\xc2\xa6result\xa4none\xa3"
        "doc\xa1"
        "d\xa5reads\xa0\xa6writes\xa0");
}

TEST_CASE("names that begin with slime. are the server's own") {
  Server server;
  for (const char* name : {"slime.Reflection", "slime.Health", "slime.", "slime.mine"}) {
    Service service{std::string(name)};
    REQUIRE(service.add("m", [] {}).ok());
    const Status refused = server.add(service);
    CHECK(refused.code() == Code::kInvalidArgument);
    CHECK(refused.text().find("reserved") != std::string::npos);
    CHECK(server.remove(name).code() == Code::kInvalidArgument);
  }
  Service close_by("slimes.mine");
  REQUIRE(close_by.add("m", [] {}).ok());
  CHECK(server.add(close_by).ok());
  CHECK(server.serves("slime.Health", "check"));
}

TEST_CASE("health: serving, unknown, and draining while nothing else is taken") {
  Server server({.workers = 1});
  Gate gate;
  Service service("s");
  REQUIRE(service.add("wait", [&] { gate.pass(); }).ok());
  REQUIRE(server.add(service).ok());
  CHECK(health(server, "") == "serving");
  CHECK(health(server, "s") == "serving");
  CHECK(health(server, "t") == "unknown");
  Caller running;
  server.handle(running.request("s", "wait", encode_arguments()));
  gate.wait_inside(1);
  CHECK(server.drain(Nanos(0)).code() == Code::kDeadlineExceeded);
  CHECK(health(server, "") == "draining");
  CHECK(health(server, "s") == "draining");
  CHECK(health(server, "t") == "unknown");
  CHECK(call(server, "s", "wait").status().code() == Code::kUnavailable);
  CHECK(call(server, "slime.Reflection", "services").status().code() == Code::kUnavailable);
  gate.open();
  CHECK(running.wait().has_value());
  CHECK(server.drain(30s).ok());
  CHECK(health(server, "") == "draining");
}

TEST_CASE("the answers of health and reflection come before handle() returns") {
  Server server({.workers = 1});
  for (const auto& [service, method] :
       {std::pair("slime.Health", "check"), {"slime.Reflection", "service"}}) {
    Caller caller;
    server.handle(caller.request(service, method, encode_arguments("")));
    CHECK(caller.answers() == 1);
  }
}

}  // namespace reflection_test
