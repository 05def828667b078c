#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "cli/values.h"

using slime::ByteVector;
using slime::Code;
namespace cli = slime::cli;

namespace {

std::string encoded(const std::vector<std::string>& arguments) {
  const auto bytes = cli::encode_json_arguments(arguments);
  return bytes ? slime::to_hex(*bytes) : bytes.error().to_string();
}

slime::Result<nlohmann::json> decoded(const std::string& hex) {
  ByteVector bytes(hex.size() / 2);
  REQUIRE(slime::from_hex(hex, bytes));
  return cli::decode_to_json(bytes);
}

}  // namespace

TEST_CASE("arguments become one msgpack array") {
  CHECK(encoded({}) == "90");
  CHECK(encoded({"1", "-1", "true", "null"}) == "9401ffc3c0");
  CHECK(encoded({"\"a\"", "[1,2]", "{\"k\":1}"}) ==
        "93a161920102"
        "81a16b01");
}

TEST_CASE("binaries are written as $bytes, at any depth") {
  CHECK(encoded({R"({"$bytes": "00ff"})"}) == "91c40200ff");
  CHECK(encoded({R"([{"$bytes": ""}])"}) == "9191c400");
  // With another key beside it, it is a map like any other.
  CHECK(encoded({R"({"$bytes": "00", "x": 1})"}).substr(0, 4) == "9182");
}

TEST_CASE("what is not JSON names the argument and says what to do") {
  const auto text = cli::encode_json_arguments({"1", "hello"});
  REQUIRE_FALSE(text.has_value());
  CHECK(text.error().code() == Code::kInvalidArgument);
  CHECK(text.error().text().find("argument 2 is not JSON: hello") == 0);
  CHECK(cli::encode_json_arguments({R"({"$bytes": "0"})"}).error().code() == Code::kInvalidArgument);
  CHECK(cli::encode_json_arguments({R"({"$bytes": "zz"})"}).error().code() == Code::kInvalidArgument);
  CHECK(cli::encode_json_arguments({std::string(1000, '[') + std::string(1000, ']')}).error().code() ==
        Code::kInvalidArgument);
}

TEST_CASE("a reply is shown as JSON, binaries as $bytes") {
  CHECK(cli::print(*decoded("93010203"), -1) == "[1,2,3]");
  CHECK(cli::print(*decoded("c40200ff"), -1) == R"({"$bytes":"00ff"})");
  CHECK(cli::print(*decoded("81a16b91c40107"), -1) == R"({"k":[{"$bytes":"07"}]})");
}

TEST_CASE("a reply that JSON cannot show is an error, not a crash") {
  CHECK(decoded("").error().code() == Code::kCorrupt);
  CHECK(decoded("c1").error().code() == Code::kCorrupt);      // never used
  CHECK(decoded("0101").error().code() == Code::kCorrupt);    // two values
  CHECK(decoded("dc0002").error().code() == Code::kCorrupt);  // an array that ends early
  CHECK(decoded("810102").error().code() == Code::kCorrupt);  // a number as key
  CHECK(decoded("d40500").error().code() == Code::kCorrupt);  // an extension
  std::string deep(2 * 1000, '9');
  for (std::size_t i = 1; i < deep.size(); i += 2) deep[i] = '1';  // 9191...: arrays of one
  CHECK(decoded(deep + "01").error().code() == Code::kCorrupt);
  // Text that is not UTF-8 is shown with a replacement character.
  CHECK(cli::print(*decoded("a1ff"), -1) == "\"\xef\xbf\xbd\"");
}
