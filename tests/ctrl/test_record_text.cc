#include <doctest/doctest.h>

#include <string>

#include "ctrl/store/record_text.h"

namespace slime::ctrl::record_text_test {
namespace {

Result<Record> parsed(const char* text) { return parse_record(Json::parse(text)); }

TEST_CASE("a record is a list of four texts, and is read back as it was") {
  const Record record{{Table::kLinks, "a/b", "worker:0"}, R"({"targets":["x"]})"};
  const Json json = json_of(record);
  CHECK(dump(json) == R"(["links","a/b","worker:0","{\"targets\":[\"x\"]}"])");
  const Result<Record> again = parse_record(json);
  REQUIRE(again);
  CHECK(again->key == record.key);
  CHECK(again->value == record.value);
}

TEST_CASE("anything but four texts, or an unknown table, is corrupt") {
  for (const char* text :
       {"1", "{}", "[]", R"(["peer","s","n"])", R"(["peer","s","n","",""])", R"(["peer","s","n",1])",
        R"([null,"s","n",""])", R"(["peer","s",["n"],""])", R"(["pear","s","n",""])", R"(["","s","n",""])"}) {
    CAPTURE(text);
    CHECK(parsed(text).status().code() == Code::kCorrupt);
  }
  CHECK(parsed(R"(["pear","s","n",""])").status().text() == "records of kind 'pear' are unknown");
  CHECK(parsed(R"(["peer"])").status().text() == "a record is not a list of four texts");
}

TEST_CASE("a parser takes the texts one by one, and begins again after each record") {
  RecordParser parser;
  for (const char* name : {"first", "second"}) {
    for (const char* text : {"peer", "s", name, "{}"}) REQUIRE(parser.add(text).ok());
    CHECK(parser.add("fifth").code() == Code::kCorrupt);
    const Result<Record> record = parser.finish();
    REQUIRE(record);
    CHECK(record->key == RecordKey{Table::kPeer, "s", name});
    CHECK(record->value == "{}");
  }
  REQUIRE(parser.add("peer").ok());
  CHECK(parser.finish().status().code() == Code::kCorrupt);
  CHECK(parser.finish().status().code() == Code::kCorrupt);
  for (const char* text : {"keys", "s", "", "[]"}) REQUIRE(parser.add(text).ok());
  REQUIRE(parser.finish());
}

TEST_CASE("each table has a name, and the names are those of the records") {
  for (int i = 0; i <= static_cast<int>(Table::kKeys); ++i) {
    const auto table = static_cast<Table>(i);
    const Result<Record> record = record_from_texts({std::string(table_name(table)), "s", "n", "v"});
    REQUIRE(record);
    CHECK(record->key == RecordKey{table, "s", "n"});
    CHECK(record->value == "v");
  }
}

}  // namespace
}  // namespace slime::ctrl::record_text_test
