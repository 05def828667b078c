#include <doctest/doctest.h>

#include "agent/connecting/target.h"

namespace slime::agent {
namespace {

TEST_CASE("with a registry only IP addresses, localhost and tcp:// are addresses") {
  CHECK(parse_target("worker:0", true).by_name);
  CHECK(parse_target("worker:1", true).by_name);
  CHECK(parse_target("node7.example:4000", true).by_name);
  CHECK_FALSE(parse_target("10.0.0.7:4000", true).by_name);
  CHECK_FALSE(parse_target("[::1]:4000", true).by_name);
  CHECK_FALSE(parse_target("localhost:4000", true).by_name);
  const Target explicit_one = parse_target("tcp://node7:4000", true);
  CHECK_FALSE(explicit_one.by_name);
  CHECK(explicit_one.address == "node7:4000");
}

TEST_CASE("without a registry every host:port that can be connected is an address") {
  CHECK_FALSE(parse_target("node7:4000", false).by_name);
  CHECK(parse_target("worker:0", false).by_name);  // port 0 cannot be connected
  CHECK(parse_target("worker", false).by_name);
}

TEST_CASE("an empty name is refused, with a text that says what a peer is") {
  for (const bool has_registry : {false, true}) {
    const Target target = parse_target("", has_registry);
    CHECK(target.problem.code() == Code::kInvalidArgument);
    CHECK(target.problem.text().starts_with("the name of the peer is empty: a peer is a name"));
  }
}

TEST_CASE("wildcards are told from other addresses") {
  CHECK(is_wildcard({"0.0.0.0", 1}));
  CHECK(is_wildcard({"::", 1}));
  CHECK_FALSE(is_wildcard({"127.0.0.1", 1}));
  CHECK_FALSE(is_wildcard({"any", 1}));
}

}  // namespace
}  // namespace slime::agent
