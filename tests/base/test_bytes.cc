#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/copy.h"
#include "base/ids.h"
#include "base/random.h"

using slime::ByteReader;
using slime::Bytes;
using slime::ByteVector;
using slime::ByteWriter;

TEST_CASE("fields come back as they were written, little endian") {
  ByteVector out;
  ByteWriter writer(out);
  writer.write(std::uint32_t{0x04030201});
  writer.text("worker:0");
  writer.write(std::uint8_t{9});
  CHECK(slime::to_hex(out) == "010203040800776f726b65723a3009");

  ByteReader reader(out);
  CHECK(reader.read<std::uint32_t>() == 0x04030201);
  CHECK(reader.text(255) == "worker:0");
  CHECK(reader.remaining() == 1);
  CHECK_FALSE(reader.complete());
  CHECK(reader.read<std::uint8_t>() == 9);
  CHECK(reader.complete());
}

TEST_CASE("reading past the end fails for good and yields zeros") {
  const std::array<std::byte, 3> three{std::byte{1}, std::byte{2}, std::byte{3}};
  ByteReader reader{Bytes(three)};
  CHECK(reader.read<std::uint32_t>() == 0);
  CHECK(reader.failed());
  CHECK(reader.read<std::uint8_t>() == 0);
  CHECK(reader.take(1).empty());
  CHECK_FALSE(reader.complete());
}

TEST_CASE("a text above the limit fails even when its bytes are there") {
  ByteVector out;
  ByteWriter(out).text("abcdef");
  ByteReader strict{Bytes(out)};
  CHECK(strict.text(5).empty());
  CHECK(strict.failed());
  ByteReader exact{Bytes(out)};
  CHECK(exact.text(6) == "abcdef");
  CHECK(exact.complete());
}

TEST_CASE("every prefix of a valid input fails, and none reads outside") {
  ByteVector out;
  ByteWriter writer(out);
  writer.write(std::uint64_t{1});
  writer.text("abc");
  for (std::size_t size = 0; size < out.size(); ++size) {
    const ByteVector prefix(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size));
    ByteReader reader{Bytes(prefix)};
    (void)reader.read<std::uint64_t>();
    (void)reader.text(255);
    CHECK_FALSE(reader.complete());
  }
}

TEST_CASE("taking nothing from an empty input is not a failure") {
  ByteReader reader{Bytes()};
  CHECK(reader.take(0).empty());
  CHECK(reader.complete());
}

TEST_CASE("hexadecimal text goes both ways and refuses anything else") {
  std::array<std::byte, 2> out{};
  CHECK(slime::from_hex("0aFf", out));
  CHECK(slime::to_hex(out) == "0aff");
  CHECK_FALSE(slime::from_hex("0aF", out));
  CHECK_FALSE(slime::from_hex("0aFf0", out));
  CHECK_FALSE(slime::from_hex("0aFg", out));
  CHECK_FALSE(slime::from_hex(" 0af", out));
  CHECK(slime::to_hex({}).empty());
}

TEST_CASE("instance ids are random, print and parse") {
  const slime::InstanceId a = slime::InstanceId::random();
  CHECK(a != slime::InstanceId::random());
  CHECK_FALSE(a.is_zero());
  CHECK(slime::InstanceId{}.is_zero());
  CHECK(a.to_string().size() == 32);
  CHECK(slime::InstanceId::parse(a.to_string()) == a);
  CHECK_FALSE(slime::InstanceId::parse("1234").has_value());
}

TEST_CASE("bytes are copied and appended whole, wherever the target lies from the source in a page") {
  constexpr std::size_t kPage = 4096;
  ByteVector from(4 * kPage);
  slime::Rng(20261129).fill(from);
  ByteVector room(6 * kPage);
  // the distance at which `to` lies `behind` bytes behind the source
  const auto gap = [&](const ByteVector& to, std::size_t behind) {
    return (reinterpret_cast<std::uintptr_t>(from.data()) + behind -
            reinterpret_cast<std::uintptr_t>(to.data())) %
           kPage;
  };
  for (const std::size_t bytes : {0U, 1U, 2047U, 2048U, 2049U, 3072U, 5001U, 12288U}) {
    const Bytes source(from.data(), bytes);
    for (std::size_t behind = 0; behind < 24; ++behind) {
      CAPTURE(bytes);
      CAPTURE(behind);
      std::fill(room.begin(), room.end(), std::byte{7});
      ByteVector copied = room;
      const std::size_t at = gap(copied, behind);
      slime::copy_bytes(copied.data() + at, source.data(), bytes);
      CHECK(std::equal(source.begin(), source.end(), copied.data() + at));
      CHECK(std::equal(copied.begin(), copied.begin() + static_cast<std::ptrdiff_t>(at), room.begin()));
      const auto rest = static_cast<std::ptrdiff_t>(at + bytes);
      CHECK(std::equal(copied.begin() + rest, copied.end(), room.begin() + rest));

      ByteVector appended;
      appended.reserve(room.size());  // so that it stays where it is
      appended.resize(gap(appended, behind), std::byte{7});
      const std::size_t before = appended.size();
      slime::append_bytes(appended, source);
      CHECK(appended.size() == before + bytes);
      CHECK(std::equal(source.begin(), source.end(), appended.data() + before));
    }
  }
}
