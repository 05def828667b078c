// Stubs: what is generated compiles, calls what it says, and is nothing but names whatever a peer
// says.

#include <doctest/doctest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "cli/stub_text.h"
#include "cli/wire_types.h"
#include "ctrl/server.h"
#include "tests/cli/calc_stubs.inc"
#include "tests/support/files.h"
#include "tests/support/settings.h"

using namespace std::chrono_literals;

namespace slime::cli {
namespace {

const Nanos kPatience = test::patient(60s);

// Answers with its arguments.
Status add_echo(rpc::Service& service, rpc::MethodInfo info) {
  const std::string name = info.name;
  return service.add_raw(
      name,
      [](rpc::Request request) { request.reply(ByteVector(request.body().begin(), request.body().end())); },
      rpc::Run::kPool, std::move(info));
}

// Typed methods of C++, and what only other languages, or peers that mean no good, would say.
std::vector<rpc::Service> services() {
  std::vector<rpc::Service> out;
  rpc::Service& calc = out.emplace_back("test.calc");
  REQUIRE(calc.add("add", [](std::int64_t a, std::int64_t b) { return a + b; },
                   {.parameters = {"a", "b"}, .doc = "The sum.\n\nOf two.\n"})
              .ok());
  REQUIRE(calc.add("forget", [](const std::string&) {}, {.parameters = {"key"}}).ok());
  REQUIRE(
      calc.add("lengths",
               [](const std::vector<ByteVector>& blobs, std::optional<bool> reverse) {
                 std::map<std::string, std::tuple<std::int64_t, double>> lengths;
                 for (const ByteVector& blob : blobs)
                   lengths[std::to_string(blob.size())] = {blob.size(), reverse.value_or(false) ? -1.0 : 1.0};
                 return lengths;
               })
          .ok());
  REQUIRE(calc.add("range",
                   [](rpc::ServerStream<None, std::int64_t>& stream, std::int64_t n) {
                     for (std::int64_t i = 0; i < n; ++i) stream.write(i).wait().status().ignore();
                   },
                   {.parameters = {"n"}, .doc = "Counts."})
              .ok());
  REQUIRE(calc.add("total",
                   [](rpc::ServerStream<double, None>& stream) {
                     double sum = 0;
                     for (auto next = stream.read().wait(); next && *next; next = stream.read().wait())
                       sum += **next;
                     return sum;
                   })
              .ok());
  REQUIRE(calc.add_bytes("swap", [](Bytes bytes) { return ByteVector(bytes.rbegin(), bytes.rend()); },
                         {.doc = "Turns them round."})
              .ok());
  rpc::Service& odd = out.emplace_back("class");
  REQUIRE(add_echo(odd, {.name = "class",
                         .parameters = {{.name = "for", .type = "int"},
                                        {.name = "for", .type = "str", .optional = true},
                                        {.name = "x.y", .type = "any", .optional = true}},
                         .result = "list[any]",
                         .doc = "Ends with \"\"\" and */ and ?\?/\n#include <none>\\"})
              .ok());
  REQUIRE(add_echo(odd, {.name = "class_",
                         .parameters = {{.name = "first", .type = "int"}, {.type = "int", .rest = true}},
                         .result = "tuple[int, int, int]"})
              .ok());
  REQUIRE(add_echo(odd, {.name = "größe \"in\" \\ m²",
                         .parameters = {{.type = "none"}, {.name = "_self", .type = "wrong[[["}},
                         .result = "any"})
              .ok());
  REQUIRE(add_echo(odd, {.name = "tell", .result = "any", .reads = "any", .writes = "bytes"}).ok());
  REQUIRE(add_echo(odd, {.name = "x", .parameters = {{.rest = true}}, .result = "list[int]"}).ok());
  return out;
}

class Served {
 public:
  Served() {
    ctrl::ServerOptions registry;
    registry.port = 0;
    registry.threads = 8;
    auto bound = ctrl::Server::bind(registry);
    REQUIRE_MESSAGE(bound.has_value(), bound.status().to_string());
    registry_ = std::move(*bound);
    REQUIRE(registry_->start().ok());
    PeerAgentOptions options;
    options.name = "served";
    options.provider = test::provider();
    options.ctrl_url = registry_->url();
    auto agent = PeerAgent::start(options);
    REQUIRE_MESSAGE(agent.has_value(), agent.status().to_string());
    agent_ = std::move(*agent);
    for (rpc::Service& service : services()) REQUIRE(agent_->serve(service).ok());
  }
  PeerAgent& agent() { return *agent_; }
  // What it says of its own services.
  std::vector<rpc::ServiceInfo> described() {
    auto list = agent_->peer("served").services().wait(kPatience);
    REQUIRE_MESSAGE(list.has_value(), list.status().to_string());
    std::erase_if(*list, [](const auto& each) { return each.name.rfind("slime.", 0) == 0; });
    return *list;
  }

 private:
  std::unique_ptr<ctrl::Server> registry_;
  std::unique_ptr<PeerAgent> agent_;
};

template <class T>
T get(Future<T> future) {
  auto result = future.wait(kPatience);
  REQUIRE_MESSAGE(result.has_value(), result.status().to_string());
  return std::move(*result);
}

TEST_CASE("the header that this test is compiled with is what is generated") {
  Served served;
  std::ifstream file(test::source_file("tests/cli/calc_stubs.inc"));
  std::stringstream golden;
  golden << file.rdbuf();
  const std::string now = cpp_stubs(served.described(), {});
  CHECK_MESSAGE(golden.str() == now, now);
}

TEST_CASE("stubs of C++ call one peer, or any live server") {
  Served served;
  PeerAgent& agent = served.agent();
  for (stubs::test_calc calc :
       {stubs::test_calc(agent.peer("served")), stubs::test_calc(agent.proxy("test.calc"))}) {
    CHECK(get(calc.add(40, 2)) == 42);
    get(calc.forget("key"));
    const auto lengths = get(calc.lengths({ByteVector(3), ByteVector(5)}, true));
    CHECK(lengths ==
          std::map<std::string, std::tuple<std::int64_t, double>>{{"3", {3, -1.0}}, {"5", {5, -1.0}}});
    const Bytes word = as_bytes("word");
    CHECK(as_text(get(calc.swap({word.begin(), word.end()})).bytes()) == "drow");
  }
  stubs::test_calc calc(agent.peer("served"));
  auto range = calc.range(2);
  CHECK(get(range.read()) == 0);
  CHECK(get(range.read()) == 1);
  CHECK(get(range.read()) == std::nullopt);
  auto total = calc.total();
  get(total.write(1.5));
  CHECK(get(total.finish()) == 1.5);
  CHECK(stubs::test_calc(agent.proxy("test.calc")).total().finish().wait(kPatience).status().code() ==
        Code::kUnimplemented);
  auto [end, raw] = stubs::class_(agent.peer("served")).tell();
  CHECK(get(std::move(raw)).bytes().size() == rpc::encode_arguments().size());
  for (stubs::class_ odd : {stubs::class_(agent.peer("served")), stubs::class_(agent.proxy("class"))}) {
    CHECK(get(odd.class_2(1)).bytes().size() == rpc::encode_arguments(1).size());
    const Payload three = get(odd.class_2(1, "two", 3.5));
    CHECK(*rpc::decode_value<std::tuple<int, std::string, double>>(three.bytes()) ==
          std::tuple(1, "two", 3.5));
    CHECK(get(odd.class_3(1, 2, 3)) == std::tuple(1, 2, 3));
    CHECK(get(odd.x(1, 2, 3, 4)) == std::vector<std::int64_t>{1, 2, 3, 4});
    CHECK(get(odd.x()).empty());
  }
}

TEST_CASE("types are read as they are named, and anything else is any") {
  CHECK(parse_wire_type("map[str, list[optional[int]]]").of[1].of[0].of[0].name == "int");
  CHECK(parse_wire_type("tuple[]").name == "tuple");
  CHECK_FALSE(parse_wire_type("tuple[int, str]").has_any());
  CHECK(parse_wire_type("tuple[int, any]").has_any());
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "list[";
  for (const std::string& text :
       {std::string(), std::string("list"), std::string("list[int"), std::string("list[int, int]"),
        std::string("int[str]"), std::string("map[int]"), std::string("Int"), std::string("int "),
        std::string("list[int]]"), deep})
    CHECK(parse_wire_type(text).name == "any");
}

TEST_CASE("names are unique, and none of a keyword") {
  Names names({"class"});
  CHECK(names.take("add") == "add");
  CHECK(names.take("add") == "add_");
  CHECK(names.take("add") == "add_2");
  CHECK(names.take("class") == "class_");
  CHECK(names.take("class_") == "class_2");
  CHECK(names.take("a__b") == "a__b");
  CHECK(names.take("a.b c") == "a_b_c");
  CHECK(names.take("__init__") == "x__init__");
  CHECK(names.take("2nd") == "x2nd");
  CHECK(names.take("") == "x");
  CHECK(is_identifier("a_1"));
  CHECK_FALSE(is_identifier("1a"));
  CHECK_FALSE(is_identifier("a b"));
}

TEST_CASE("what a peer says does not get out of its text") {
  const std::string evil = "\"\"\"\nimport os\n\x01\\";
  const rpc::MethodInfo called{
      .name = evil, .parameters = {{.name = evil, .type = evil}}, .result = evil, .doc = evil};
  rpc::MethodInfo streams = called;
  streams.reads = streams.writes = evil;
  const std::vector<rpc::ServiceInfo> services{{.name = evil, .methods = {called, streams}}};
  for (const std::string& text : {python_stubs(services), cpp_stubs(services, {})}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      CHECK(line.find('\x01') == std::string::npos);
      CHECK(line.rfind("import os", 0) == std::string::npos);
    }
  }
}

}  // namespace
}  // namespace slime::cli
