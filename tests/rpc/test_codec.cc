#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "base/str.h"
#include "rpc/codec.h"

using namespace slime;
using namespace slime::rpc;

namespace {

struct Point {
  int x = 0;
  int y = 0;
  std::string label;
  MSGPACK_DEFINE(x, y, label)
};

struct Named {
  double weight = 0;
  std::vector<std::int64_t> ids;
  MSGPACK_DEFINE_MAP(weight, ids)
};

ByteVector from_text_hex(std::string_view hex) {
  ByteVector out(hex.size() / 2);
  REQUIRE(from_hex(hex, out));
  return out;
}

template <class T>
T round_trip(const T& value) {
  auto back = decode_value<T>(encode_value(value));
  REQUIRE_MESSAGE(back.has_value(), back.status().to_string());
  return *back;
}

}  // namespace

TEST_CASE("integers of every width come back, and do not where they do not fit") {
  const auto check = []<class T>(T) {
    for (const std::int64_t value : {std::int64_t{0},
                                     std::int64_t{1},
                                     std::int64_t{-1},
                                     std::int64_t{127},
                                     std::int64_t{-32},
                                     std::int64_t{-33},
                                     std::int64_t{128},
                                     std::int64_t{-128},
                                     std::int64_t{-129},
                                     std::int64_t{255},
                                     std::int64_t{256},
                                     std::int64_t{32767},
                                     std::int64_t{-32768},
                                     std::int64_t{-32769},
                                     std::int64_t{65535},
                                     std::int64_t{65536},
                                     std::int64_t{INT32_MAX},
                                     std::int64_t{INT32_MIN},
                                     std::int64_t{INT32_MIN} - 1,
                                     std::int64_t{UINT32_MAX},
                                     std::int64_t{UINT32_MAX} + 1,
                                     INT64_MAX,
                                     INT64_MIN}) {
      const auto got = decode_value<T>(encode_value(value));
      CAPTURE(value);
      CHECK(got.has_value() == std::in_range<T>(value));
      if (got) CHECK(std::cmp_equal(*got, value));
    }
    CHECK(decode_value<T>(encode_value(UINT64_MAX)).has_value() == std::in_range<T>(UINT64_MAX));
  };
  check(std::int8_t{});
  check(std::uint8_t{});
  check(std::int16_t{});
  check(std::uint16_t{});
  check(std::int32_t{});
  check(std::uint32_t{});
  check(std::int64_t{});
  check(std::uint64_t{});
  CHECK(round_trip('c') == 'c');  // a character is a number to msgpack
}

TEST_CASE("texts and bytes of every width of length come back") {
  for (const std::size_t size : {0, 1, 31, 32, 255, 256, 65535, 65536}) {
    CAPTURE(size);
    CHECK(round_trip(std::string(size, 'x')).size() == size);
    CHECK(round_trip(ByteVector(size, std::byte{7})) == ByteVector(size, std::byte{7}));
  }
}

TEST_CASE("values come back as they were") {
  CHECK(round_trip(42) == 42);
  CHECK(round_trip(std::int64_t{-1} << 60) == std::int64_t{-1} << 60);
  CHECK(round_trip(3.25) == 3.25);
  CHECK(round_trip(true));
  CHECK(round_trip(std::string("grün")) == "grün");
  CHECK(round_trip(std::optional<int>{}) == std::optional<int>{});
  CHECK(round_trip(std::optional<int>{7}) == 7);
  CHECK(round_trip(std::vector<std::string>{"a", "b"}) == std::vector<std::string>{"a", "b"});
  CHECK(round_trip(std::map<std::string, int>{{"a", 1}}) == std::map<std::string, int>{{"a", 1}});
  CHECK(round_trip(std::tuple<int, std::string>(1, "x")) == std::tuple<int, std::string>(1, "x"));
  const Point point = round_trip(Point{1, -2, "here"});
  CHECK(point.x == 1);
  CHECK(point.y == -2);
  CHECK(point.label == "here");
  const Named named = round_trip(Named{0.5, {1, 2, 3}});
  CHECK(named.weight == 0.5);
  CHECK(named.ids == std::vector<std::int64_t>{1, 2, 3});
}

TEST_CASE("bytes are bin, texts are str, void is nil") {
  const ByteVector bytes{std::byte{1}, std::byte{2}};
  CHECK(to_hex(encode_value(bytes)) == "c4020102");
  CHECK(to_hex(encode_value(Bytes(bytes))) == "c4020102");
  CHECK(to_hex(encode_value(std::string("ab"))) == "a26162");
  CHECK(to_hex(encode_value(None{})) == "c0");
  CHECK(to_hex(encode_arguments(1, "ab", bytes)) == "9301a26162c4020102");
  CHECK(to_hex(encode_arguments()) == "90");
  CHECK(round_trip(bytes) == bytes);
}

TEST_CASE("a float stays a float, also one that is a whole number") {
  CHECK(to_hex(encode_value(1.0)) == "cb3ff0000000000000");
  CHECK(to_hex(encode_value(-0.0)) == "cb8000000000000000");
  // And so where attachments may be.
  const std::vector<double> doubles{1.0, -0.0};
  CHECK(encode_attached_value(doubles).body == encode_value(doubles));
  const std::vector<float> floats{1.0F, -0.0F};
  CHECK(encode_attached_arguments(floats).body == encode_arguments(floats));
  CHECK(to_hex(encode_value(2.0F)) == "ca40000000");
  CHECK(to_hex(encode_value(std::vector<double>{-3})) == "91cbc008000000000000");
  CHECK(std::signbit(round_trip(-0.0)));
  CHECK(*decode_value<double>(encode_value(7)) == 7.0);  // what other writers send
}

TEST_CASE("a value of another type is refused with both types") {
  const auto bad = decode_value<int>(encode_value(std::string("ten")));
  REQUIRE(!bad);
  CHECK(bad.error().code() == Code::kInvalidArgument);
  CHECK(bad.error().text() == "cannot convert a string to int");
  CHECK(!decode_value<unsigned>(encode_value(-1)));
  CHECK(!decode_value<std::uint8_t>(encode_value(300)));
  CHECK(!decode_value<bool>(encode_value(1)));
  CHECK(!decode_value<int>(encode_value(1.5)));
}

TEST_CASE("None takes any value but only msgpack") {
  CHECK(decode_value<None>(encode_value(5)).has_value());
  CHECK(!decode_value<None>(Bytes{}).has_value());
  CHECK(!decode_value<None>(from_text_hex("c1")).has_value());
}

TEST_CASE("wrong arguments say which, and what was expected") {
  const auto decode = [](Bytes bytes) { return decode_arguments<int, std::string>(bytes, "calc.add"); };
  CHECK(decode(encode_arguments(1, "x")).has_value());
  const auto type = decode(encode_arguments(1, 2));
  REQUIRE(!type);
  CHECK(type.error().code() == Code::kInvalidArgument);
  CHECK(type.error().text().find("bad arguments for calc.add: argument 2 is an integer, expected") == 0);
  const auto arity = decode(encode_arguments(1));
  REQUIRE(!arity);
  CHECK(arity.error().text().find("bad arguments for calc.add: takes 2 (int, ") == 0);
  CHECK(arity.error().text().find("got 1") != std::string::npos);
  CHECK(!decode(encode_value(1)).has_value());
  CHECK(!decode(Bytes{}).has_value());
  CHECK(decode_arguments<>(encode_arguments(), "f").has_value());
  CHECK(!decode_arguments<>(encode_arguments(1), "f").has_value());
}

TEST_CASE("views among arguments point into the request") {
  const ByteVector body = encode_arguments("text", ByteVector{std::byte{9}});
  const auto values = decode_arguments<std::string_view, Bytes>(body, "f");
  REQUIRE(values.has_value());
  CHECK(std::get<0>(*values) == "text");
  const std::byte* data = std::get<1>(*values).data();
  CHECK(data >= body.data());
  CHECK(data < body.data() + body.size());
}

TEST_CASE("each kind of msgpack object is accepted once, and no byte less or more") {
  const char* const objects[] = {"00",
                                 "7f",
                                 "ff",
                                 "c0",
                                 "c2",
                                 "c3",
                                 "ca3f800000",
                                 "cb3ff0000000000000",
                                 "cc80",
                                 "cd0100",
                                 "ce00010000",
                                 "cf0000000100000000",
                                 "d080",
                                 "d18000",
                                 "d280000000",
                                 "d38000000000000000",
                                 "a0",
                                 "a161",
                                 "d90161",
                                 "da000161",
                                 "db0000000161",
                                 "c400",
                                 "c40101",
                                 "c5000101",
                                 "c60000000101",
                                 "d40100",
                                 "d5010000",
                                 "d60100000000",
                                 "d7010000000000000000",
                                 "d80100000000000000000000000000000000",
                                 "c70105ff",
                                 "c8000105ff",
                                 "c90000000105ff",
                                 "90",
                                 "9101",
                                 "dc000101",
                                 "dd0000000101",
                                 "80",
                                 "810102",
                                 "de00010102",
                                 "df000000010102",
                                 "82a16101c0920102"};
  for (const char* const hex : objects) {
    CAPTURE(hex);
    ByteVector bytes = from_text_hex(hex);
    CHECK(validate_msgpack(bytes).ok());
    CHECK(decode_value<None>(bytes).has_value());
    for (std::size_t cut = 0; cut < bytes.size(); ++cut)
      CHECK(!validate_msgpack(Bytes(bytes).first(cut)).ok());
    bytes.push_back(std::byte{0});
    CHECK(!validate_msgpack(bytes).ok());
  }
  CHECK(!validate_msgpack(from_text_hex("c1")).ok());
}

TEST_CASE("claims beyond the bytes are refused before anything is allocated") {
  for (const char* const hex : {"ddffffffff", "dfffffffff", "dcffff00", "c6ffffffff", "dbffffffff00",
                                "c9ffffffff0100", "dd00000002dd7fffffff00", "df80000000"}) {
    CAPTURE(hex);
    const auto status = validate_msgpack(from_text_hex(hex));
    CHECK(status.code() == Code::kInvalidArgument);
  }
}

TEST_CASE("nesting is accepted up to the limit") {
  ByteVector nested(rpc::limits::kMsgpackDepth, std::byte{0x91});
  nested.push_back(std::byte{0xc0});
  CHECK(validate_msgpack(nested).ok());
  CHECK(decode_value<None>(nested).has_value());
  nested.insert(nested.begin(), std::byte{0x91});
  CHECK(validate_msgpack(nested).text().find("nested too deep") != std::string::npos);
  CHECK(!validate_msgpack(ByteVector(100'000, std::byte{0x91})).ok());
}

TEST_CASE("random bytes never do more than fail") {
  const std::uint64_t seed = 20240607;
  CAPTURE(seed);
  Rng rng(seed);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    ByteVector bytes(rng.below(24));
    rng.fill(bytes);
    const bool valid = validate_msgpack(bytes).ok();
    // What the validator lets pass, msgpack-c must be able to unpack.
    CHECK(decode_value<None>(bytes).has_value() == valid);
    decode_value<std::map<std::string, std::vector<int>>>(bytes).status().ignore();
    if (valid) ++accepted;
  }
  CHECK(accepted > 0);
}

TEST_CASE("a reply is decoded by the one who takes it") {
  Promise<Payload> promise;
  Future<int> value = decode_future<int>(promise.future());
  CHECK(!value.done());
  promise.complete(Payload(encode_value(5)));
  CHECK(value.done());
  const auto result = value.wait();
  REQUIRE(result.has_value());
  CHECK(*result == 5);
}

TEST_CASE("a reply of another type is an error of the peer") {
  const auto result = decode_future<int>(Future<Payload>::ready(Payload(encode_value("x")))).wait();
  REQUIRE(!result);
  CHECK(result.error().code() == Code::kInternal);
  CHECK(result.error().maybe_executed());
}

TEST_CASE("a reply of another type names the method") {
  Promise<Payload> promise;
  promise.set_label("calc.add");
  Future<int> value = decode_future<int>(promise.future());
  promise.complete(Payload(encode_value("x")));
  const auto result = value.wait();
  CHECK(result.status().text() == "bad reply of calc.add: cannot convert a string to int");
}

TEST_CASE("a failed reply and a cancel pass through") {
  const auto failed = decode_future<void>(Future<Payload>::ready(
                                              Status(Code::kUnavailable, "gone").with_maybe_executed(true)))
                          .wait();
  CHECK(failed.status().code() == Code::kUnavailable);
  CHECK(failed.status().maybe_executed());

  Promise<Payload> promise;
  bool cancelled = false;
  promise.on_cancel([&] { cancelled = true; });
  Future<int> value = decode_future<int>(promise.future());
  value.cancel();
  CHECK(cancelled);
  CHECK(!value.done());
  promise.complete(Status(Code::kCancelled, "asked for"));
  CHECK(value.wait().status().code() == Code::kCancelled);
  CHECK(decode_future<int>(Future<Payload>()).wait().status().code() == Code::kInvalidArgument);
}
