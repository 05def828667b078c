#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tests/ctrl/every_route.h"
#include "tests/support/files.h"

// openapi.json lists the server's routes. tests/openapi checks the replies against it, with
// generated requests.
namespace slime::ctrl::openapi_test {
namespace {

using test::Answer;
using test::Asker;
using test::HttpServer;
using test::Json;

std::string file_text() {
  std::ifstream file(slime::test::source_file("ctrl/openapi.json"));
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}
Json document() { return Json::parse(file_text()); }

TEST_CASE("the document is served without a token, as it is in the tree") {
  ServerOptions options = test::small_server();
  options.api.require_token = true;
  const HttpServer server(options);
  const Answer answer = Asker(server.server->port())(test::get("/v1/openapi.json"));
  CHECK(answer.status == 200);
  CHECK(answer.body == file_text());
}

TEST_CASE("every route is in the document, and nothing else is") {
  std::multiset<std::string> served;
  for (const Route& route : all_routes()) served.insert(str(route.method, " ", route.path));
  std::multiset<std::string> described;
  const Json all = document();
  for (const auto& [path, operations] : all.at("paths").items()) {
    for (const auto& [key, operation] : operations.items()) {
      if (key == "parameters") continue;
      std::string method = key;
      for (char& c : method) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      described.insert(str(method, " ", path));
    }
  }
  CHECK(described == served);
}

TEST_CASE("the document states the need of a token, the body, and the parameters of each path") {
  const HttpServer server(test::with_root());
  const test::World world(server.server->port());
  const Json all = document();
  for (const test::RouteCase& route : test::every_route(world)) {
    CAPTURE(route.name());
    const Json& path = all.at("paths").at(route.path);
    std::string method = route.method;
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const Json& operation = path.at(method);
    CHECK(operation.contains("security") == (route.needs == test::Needs::kNothing));
    CHECK(operation.contains("requestBody") == route.has_body());
    CHECK(path.contains("parameters") == (route.path.find('{') != std::string::npos));
    for (const char* status : {"200", "400", "413", "429", "503"})
      CHECK(operation.at("responses").contains(status));
    CHECK(operation.at("responses").contains("401") == (route.needs != test::Needs::kNothing));
  }
}

void check_refs(const Json& all, const Json& at) {
  if (at.is_object() && at.contains("$ref")) {
    const std::string ref = at.at("$ref");
    CAPTURE(ref);
    CHECK(all.contains(Json::json_pointer(ref.substr(1))));
  }
  if (!at.is_structured()) return;
  for (const Json& inner : at) check_refs(all, inner);
}

TEST_CASE("every reference leads somewhere") { check_refs(document(), document()); }

TEST_CASE("the document's limits are the server's") {
  const Json all = document();
  const Json& schemas = all.at("components").at("schemas");
  const auto limit = [&](const char* schema, const char* member, const char* what) -> std::uint64_t {
    const Json& of = schemas.at(schema);
    return (member[0] == 0 ? of : of.at("properties").at(member)).at(what);
  };
  CHECK(limit("Name", "", "maxLength") == limits::kNameBytes);
  CHECK(limit("ShortName", "", "maxLength") == limits::kKindBytes);
  CHECK(limit("ShortName", "", "maxLength") == limits::kMetadataKeyBytes);
  CHECK(limit("Integer", "", "maximum") == limits::kIntegerMax);
  CHECK(limit("Address", "", "maxLength") == limits::kAddressBytes);
  CHECK(limit("Metadata", "", "maxProperties") == limits::kMetadataEntries);
  CHECK(limit("Service", "labels", "maxProperties") == limits::kServiceLabels);
  CHECK(limit("Service", "methods", "maxItems") == limits::kMethodsPerService);
  CHECK(limit("Services", "", "maxItems") == limits::kServicesPerPeer);
  CHECK(limit("Regions", "", "maxItems") == limits::kRegionsPerPeer);
  CHECK(limit("Registration", "providers", "maxItems") == limits::kProvidersPerPeer);
  CHECK(limit("Registration", "ttl_ms", "maximum") ==
        static_cast<std::uint64_t>(limits::kTtlMax / Nanos(1'000'000)));
  CHECK(limit("Links", "targets", "maxItems") == limits::kLinksPerPeer);
  CHECK(limit("Report", "links", "maxItems") == limits::kReportLinks);
  CHECK(limit("Report", "counters", "maxProperties") == limits::kReportCounters);
  CHECK(limit("Heartbeats", "peers", "maxItems") == limits::kHeartbeats);
  CHECK(limit("Changes", "events", "maxItems") == limits::kEventsPerReply);
  CHECK(limit("TokenRequest", "note", "maxLength") == limits::kTokenNoteBytes);
  CHECK(limit("TokenRequest", "expires_in_s", "maximum") == limits::kTokenSecondsMax);
  CHECK(schemas.at("Labels").at("additionalProperties").at("maxLength") == limits::kMetadataValueBytes);
  const Json& parameters = all.at("components").at("parameters");
  CHECK(parameters.at("limit").at("schema").at("maximum") == limits::kPeersPerPage);
}

TEST_CASE("the document's patterns match what the server takes") {
  const Json schemas = document().at("components").at("schemas");
  const std::regex name(schemas.at("Name").at("pattern").get<std::string>());
  for (const char* text :
       {"a",        "ns/model/w:0", "...",   "a..b", ".a",  "a.", "/", "a/", "/a", "a//b",
        ".",        "..",           "a/./b", "a/..", "a b", "",   "-", "~",  "@",  "a/.../b",
        "\xc3\xa4", "a\n",          "....",  "./a",  "a\\b"}) {
    CAPTURE(text);
    CHECK(std::regex_match(text, name) == check_name("name", text).ok());
  }
  const std::regex address(schemas.at("Address").at("pattern").get<std::string>());
  for (const char* text :
       {"127.0.0.1:1", "h:65535", "h:65536", "h:0", "h:", ":1", "h", "[::1]:80", "[]:1", "::1:80",
        "[fe80::1%eth0]:7", "h:007", "h:+1", "a b:1", "h:1 ", "[::1]", "h:99999", "h:000"}) {
    CAPTURE(text);
    CHECK(std::regex_match(text, address) == parse_host_port(text).has_value());
  }
}

}  // namespace
}  // namespace slime::ctrl::openapi_test
