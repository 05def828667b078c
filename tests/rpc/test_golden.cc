// Bytes that were written once stay readable: tests/rpc/golden, which the tests in Python read,
// too.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rpc/codec.h"
#include "rpc/codec/frame.h"
#include "tests/support/files.h"

using namespace slime;
using namespace slime::rpc;

namespace {

struct Line {
  std::string name;
  int type = 0;
  std::string body;  // its msgpack as JSON; "-": it has none
  ByteVector bytes;
};

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> parts;
  for (std::size_t at = 0;;) {
    const auto end = line.find(" | ", at);
    parts.push_back(line.substr(at, end == std::string::npos ? end : end - at));
    if (end == std::string::npos) return parts;
    at = end + 3;
  }
}

std::vector<Line> read_lines(const std::string& file) {
  std::ifstream in(test::source_file("tests/rpc/golden/" + file));
  REQUIRE(in.good());
  std::vector<Line> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const auto parts = split(line);
    REQUIRE(parts.size() == 4);
    Line out{parts[0], std::stoi(parts[1]), parts[2], ByteVector(parts[3].size() / 2)};
    REQUIRE(from_hex(parts[3], out.bytes));
    lines.push_back(std::move(out));
  }
  return lines;
}

}  // namespace

TEST_CASE("every frame of version 1 is read as what it was") {
  const auto lines = read_lines("frames-1.txt");
  CHECK(lines.size() >= 25);
  for (const Line& line : lines) {
    CAPTURE(line.name);
    const auto frame = wire::decode_frame(line.bytes);
    REQUIRE(frame.has_value());
    CHECK(static_cast<int>(frame->header.type) == line.type);
    if (line.body == "-") continue;
    CHECK(validate_msgpack(frame->body).ok());
    CHECK(nlohmann::json::from_msgpack(std::vector<std::uint8_t>(
              reinterpret_cast<const std::uint8_t*>(frame->body.data()),
              reinterpret_cast<const std::uint8_t*>(frame->body.data()) + frame->body.size())) ==
          nlohmann::json::parse(line.body));
  }
}

TEST_CASE("every value of version 1 is read, and written as the same bytes") {
  for (const Line& line : read_lines("values-1.txt")) {
    CAPTURE(line.name);
    CHECK(validate_msgpack(line.bytes).ok());
    const auto unpacked = rpc::detail::unpack(line.bytes);
    REQUIRE(unpacked.has_value());
    CHECK(encode_value(unpacked->get()) == line.bytes);
  }
}
