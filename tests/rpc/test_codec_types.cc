// The types that rpc/README.md lists convert in a file that includes no msgpack header itself.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <forward_list>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "rpc/codec.h"

using namespace slime;
using namespace slime::rpc;

enum class Shade : std::uint8_t { kDark = 3, kLight = 9 };
MSGPACK_ADD_ENUM(Shade);

namespace {

struct Pixel {
  Shade shade = Shade::kDark;
  std::vector<double> weights;
  std::map<std::string, std::optional<int>> tags;
  bool operator==(const Pixel&) const = default;
  MSGPACK_DEFINE(shade, weights, tags)
};

struct Picture {
  std::string title;
  std::vector<Pixel> pixels;
  bool operator==(const Picture&) const = default;
  MSGPACK_DEFINE_MAP(title, pixels)
};

template <class T>
void check_round_trip(const T& value) {
  CAPTURE(rpc::detail::type_name<T>());
  const ByteVector body = encode_value(value);
  const auto back = decode_value<T>(body);
  REQUIRE_MESSAGE(back.has_value(), back.status().to_string());
  CHECK(*back == value);
}

}  // namespace

TEST_CASE("bool, numbers, enums and strings convert") {
  check_round_trip(true);
  check_round_trip(-7);
  check_round_trip(1.5F);
  check_round_trip(2.25);
  check_round_trip(Shade::kLight);
  check_round_trip(std::string("text"));
  const ByteVector body = encode_value(std::string_view("view"));
  CHECK(*decode_value<std::string_view>(body) == "view");
  CHECK(*decode_value<std::string>(encode_value("literal")) == "literal");
  const char* pointer = "pointer";
  CHECK(*decode_value<std::string>(encode_value(pointer)) == "pointer");
}

TEST_CASE("vectors and arrays of char, unsigned char and std::byte convert, and are bytes") {
  const auto check = [](const auto& value) {
    CHECK(encode_value(value).front() == std::byte{0xc4});  // bin 8
    check_round_trip(value);
  };
  check(std::vector<char>{'a', 'b'});
  check(std::vector<unsigned char>{1, 2});
  check(ByteVector{std::byte{1}, std::byte{2}});
  check(std::array<char, 2>{'a', 'b'});
  check(std::array<unsigned char, 2>{1, 2});
  check(std::array<std::byte, 2>{std::byte{1}, std::byte{2}});
  const ByteVector bytes{std::byte{7}, std::byte{8}};
  CHECK(*decode_value<ByteVector>(encode_value(Bytes(bytes))) == bytes);
}

TEST_CASE("containers convert") {
  check_round_trip(std::vector<int>{1, 2});
  check_round_trip(std::vector<bool>{true, false});
  check_round_trip(std::array<int, 3>{1, 2, 3});
  check_round_trip(std::deque<int>{1, 2});
  check_round_trip(std::list<std::string>{"a", "b"});
  check_round_trip(std::forward_list<int>{1, 2});
  check_round_trip(std::set<int>{1, 2});
  check_round_trip(std::multiset<int>{1, 1});
  check_round_trip(std::unordered_set<std::string>{"a", "b"});
  check_round_trip(std::map<std::string, int>{{"a", 1}});
  check_round_trip(std::multimap<std::string, int>{{"a", 1}, {"a", 2}});
  check_round_trip(std::unordered_map<int, std::vector<int>>{{1, {2, 3}}});
}

TEST_CASE("tuples, pairs, optionals and pointers convert") {
  check_round_trip(std::tuple<int, std::string, bool>(1, "x", true));
  check_round_trip(std::pair<int, std::string>(1, "x"));
  check_round_trip(std::optional<int>(7));
  check_round_trip(std::optional<int>());
  CHECK(**decode_value<std::unique_ptr<int>>(encode_value(std::make_unique<int>(5))) == 5);
  CHECK(**decode_value<std::shared_ptr<int>>(encode_value(std::make_shared<int>(6))) == 6);
  CHECK(*decode_value<std::shared_ptr<int>>(encode_value(std::shared_ptr<int>())) == nullptr);
  const int value = 8;
  CHECK(*decode_value<int>(encode_value(std::cref(value))) == 8);
}

TEST_CASE("structs convert, in containers and in each other") {
  const Pixel pixel{Shade::kLight, {0.5, 1}, {{"set", 1}, {"unset", {}}}};
  check_round_trip(pixel);
  check_round_trip(Picture{"two", {pixel, pixel}});
  check_round_trip(std::map<std::string, Picture>{{"a", {"one", {pixel}}}});
}
