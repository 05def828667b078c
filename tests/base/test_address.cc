#include <doctest/doctest.h>

#include "base/address.h"
#include "base/str.h"

namespace slime {
namespace {

Code code_of(std::string_view text) { return Address::parse(text).status().code(); }

TEST_CASE("an address is host:port, with brackets around IPv6") {
  const auto v4 = Address::parse("127.0.0.1:7000");
  REQUIRE(v4);
  CHECK(*v4 == Address{"127.0.0.1", 7000});
  CHECK(v4->to_string() == "127.0.0.1:7000");
  const auto v6 = Address::parse("[fe80::1%2]:0");
  REQUIRE(v6);
  CHECK(*v6 == Address{"fe80::1%2", 0});
  CHECK(v6->to_string() == "[fe80::1%2]:0");
  const auto name = Address::parse("node-7.example:65535");
  REQUIRE(name);
  CHECK(*name == Address{"node-7.example", 65535});
}

TEST_CASE("what is no address is refused with the reason and an example") {
  for (const char* text : {"",
                           ":",
                           ":7000",
                           "localhost",
                           "localhost:",
                           "localhost:x",
                           "localhost:70000",
                           "localhost:-1",
                           "localhost:+1",
                           "localhost: 1",
                           " localhost:1",
                           "::1:7000",
                           "[::1]",
                           "[::1:7000",
                           "[::1]7000",
                           "[localhost]:1",
                           "[]:1",
                           "a[b:1",
                           "http://localhost:7000",
                           "localhost:1\n"}) {
    CAPTURE(text);
    CHECK(code_of(text) == Code::kInvalidArgument);
  }
  CHECK(code_of(str(std::string(300, 'a'), ":1")) == Code::kInvalidArgument);
  CHECK(Address::parse("::1:7000").status().text() ==
        "'::1:7000' is not an address: an IPv6 address needs brackets around it; write host:port, such as "
        "127.0.0.1:7000 or [::1]:7000");
}

bool loopback(const char* host) {
  const auto address = SocketAddress::numeric({host, 1});
  REQUIRE(address);
  return address->is_loopback();
}

TEST_CASE("loopback is known in every form") {
  for (const char* host : {"127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1", "localhost"}) {
    CAPTURE(host);
    CHECK(loopback(host));
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "::2", "::ffff:10.0.0.1", "fe80::1"}) {
    CAPTURE(host);
    CHECK_FALSE(loopback(host));
  }
}

TEST_CASE("a socket address writes itself as it is parsed") {
  for (const char* text : {"127.0.0.1:7000", "[::1]:7000", "[2001:db8::5]:1", "0.0.0.0:0"}) {
    const auto address = Address::parse(text);
    REQUIRE(address);
    const auto socket_address = SocketAddress::numeric(*address);
    REQUIRE(socket_address);
    CHECK(socket_address->to_string() == text);
  }
  const auto mapped = SocketAddress::numeric({"::ffff:10.1.2.3", 9});
  REQUIRE(mapped);
  CHECK(mapped->to_string() == "10.1.2.3:9");
}

TEST_CASE("names are not numeric addresses") {
  CHECK(SocketAddress::numeric({"example.invalid", 1}).status().code() == Code::kInvalidArgument);
}

TEST_CASE("a descriptor that is no socket has no address") {
  CHECK_FALSE(SocketAddress::of_socket(-1));
  CHECK_FALSE(SocketAddress::of_peer(-1));
}

}  // namespace
}  // namespace slime
