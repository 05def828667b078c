#include <doctest/doctest.h>

#include "ctrl/types.h"
#include "ctrl/wire/url.h"
#include "tests/ctrl/samples.h"

namespace slime::ctrl::types_test {
namespace {

TEST_CASE("names that are fine") {
  for (const char* name :
       {"a", "worker:0", "ns/model/worker-0123", "rpc@host+1=x~y", "A.b_C", "..a", "a/...b"}) {
    CAPTURE(name);
    CHECK(check_name("name", name).ok());
  }
  CHECK(check_name("name", std::string(255, 'x')).ok());
}

TEST_CASE("names that are not, and an error that says which and why") {
  for (const std::string& name :
       {std::string(), std::string(256, 'x'), std::string("a b"), std::string("a\nb"), std::string("a\0b", 3),
        std::string("/a"), std::string("a/"), std::string("a//b"), std::string("."), std::string("a/../b"),
        std::string("a/./b"), std::string("\xc3\xa9"), std::string("a%b"), std::string("a?b"),
        std::string("a\"b")}) {
    CAPTURE(name);
    const Status status = check_name("region name", name);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.text().find("region name") == 0);
  }
}

TEST_CASE("addresses in two halves") {
  CHECK(parse_host_port("127.0.0.1:80")->host == "127.0.0.1");
  CHECK(parse_host_port("[::1]:4479")->host == "::1");
  CHECK(parse_host_port("[::1]:4479")->port == 4479);
  CHECK(parse_host_port("my-host.example:65535")->port == 65535);
  for (const char* bad : {"", ":", "host", "host:", ":80", "host:0", "host:65536", "host:8x", "host:-1",
                          "::1:80", "[]:80", "[::1]80", "[::1]", "a b:80", "[::1:80", "h/x:80"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_host_port(bad));
  }
}

TEST_CASE("each limit of a registration is checked") {
  using test::registration;
  const auto refused = [](auto change) {
    Registration r = registration("a", 1);
    REQUIRE(check_registration(r).ok());
    change(r);
    return check_registration(r).code() == Code::kInvalidArgument;
  };
  CHECK(refused([](Registration& r) { r.name = ""; }));
  CHECK(refused([](Registration& r) { r.scope = "a b"; }));
  CHECK(refused([](Registration& r) { r.kind = std::string(65, 'k'); }));
  CHECK(refused([](Registration& r) { r.instance = {}; }));
  CHECK(refused([](Registration& r) { r.address = "nowhere"; }));
  CHECK(refused([](Registration& r) { r.providers = {"tcp", "tcp"}; }));
  CHECK(refused([](Registration& r) { r.providers.assign(17, "x"); }));
  CHECK(refused([](Registration& r) { r.metadata["k"] = std::string(1025, 'v'); }));
  CHECK(refused([](Registration& r) { r.metadata[std::string(65, 'k')] = "v"; }));
  CHECK(refused([](Registration& r) {
    for (int i = 0; i < 33; ++i) r.metadata["k" + std::to_string(i)] = "v";
  }));
  CHECK(refused([](Registration& r) { r.services = {{"s", "", {"m", "m"}}}; }));
  CHECK(refused([](Registration& r) { r.services = {{"s", "", {}}, {"s", "", {}}}; }));
  CHECK(refused([](Registration& r) { r.services.assign(257, {"s", "", {}}); }));
  CHECK(refused([](Registration& r) { r.regions = {{"r", 1}, {"r", 2}}; }));
  CHECK(refused([](Registration& r) { r.regions = {{"r", std::uint64_t{1} << 53}}; }));
}

TEST_CASE("an address is no longer than its parts may be") {
  const std::string name(255, 'h');
  CHECK(parse_host_port(name + ":65535"));
  CHECK(parse_host_port("[" + name + "]:65535"));
  CHECK_FALSE(parse_host_port(name + "h:1"));
  CHECK_FALSE(parse_host_port("h:" + std::string(1000, '0') + "1"));
}

TEST_CASE("percent encoding brings any bytes back") {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  CHECK(percent_decode(percent_encode(all)) == all);
  CHECK(percent_encode("ns/a:b") == "ns%2Fa%3Ab");
  for (const char* bad : {"%", "%1", "%zz", "a%2", "%-1"}) CHECK_FALSE(percent_decode(bad));
}

TEST_CASE("a target is split before it is decoded") {
  const std::optional<Target> target = parse_target("/v1/peers/a%2Fb?scope=x%26y&since=1&flag");
  REQUIRE(target);
  CHECK(target->path == std::vector<std::string>{"v1", "peers", "a/b"});
  REQUIRE(target->query.size() == 3);
  CHECK(target->query[0].second == "x&y");
  CHECK(target->query[2] == std::pair<std::string, std::string>("flag", ""));
  CHECK_FALSE(parse_target("v1"));
  CHECK_FALSE(parse_target("/a%zz"));
  CHECK_FALSE(parse_target("/a?b=%"));
}

}  // namespace
}  // namespace slime::ctrl::types_test
