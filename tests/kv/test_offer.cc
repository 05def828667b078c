// What an owner offers and where a reader reads, as bytes of a peer.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "kv/offer.h"

namespace slime::kv::offer_test {
namespace {

Offer offer() {
  return {.source = 7,
          .version = 3,
          .chunk_bytes = 4096,
          .patience = std::chrono::seconds(3),
          .parts = {{"w1", 5000}, {"w2", 1}, {"w3", 8192}}};
}

void check_refused(const Offer& wrong, std::string_view text) {
  const Status status = Offer::decode(wrong.encode()).status();
  INFO(status.to_string());
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.text().find(text) != std::string::npos);
}

}  // namespace

TEST_CASE("an offer travels without a change") {
  const auto again = Offer::decode(offer().encode());
  REQUIRE(again.has_value());
  CHECK(*again == offer());
}

TEST_CASE("an offer with a wrong field is refused, with the field in the text") {
  const auto changed = [](auto change) {
    Offer out = offer();
    change(out);
    return out;
  };
  check_refused(changed([](Offer& o) { o.version = 0; }), "version is 0");
  check_refused(changed([](Offer& o) { o.chunk_bytes = 4095; }), "chunk_bytes is 4095");
  check_refused(changed([](Offer& o) { o.chunk_bytes = limits::kChunkMax + 1; }), "chunk_bytes");
  check_refused(changed([](Offer& o) { o.patience = {}; }), "patience");
  check_refused(changed([](Offer& o) { o.patience = std::chrono::hours(2); }), "patience");
  check_refused(changed([](Offer& o) { o.parts.clear(); }), "0 regions");
  check_refused(changed([](Offer& o) { o.parts[1].name = "w1"; }), "two regions have the name w1");
  check_refused(changed([](Offer& o) { o.parts[1].name = "w 1"; }), "region 1 has no name");
  check_refused(changed([](Offer& o) { o.parts[2].bytes = 0; }), "region w3 has 0 bytes");
  check_refused(changed([](Offer& o) { o.parts[2].bytes = limits::kBroadcastBytes; }), "too many");
  check_refused(changed([](Offer& o) { o.parts[2].bytes = limits::kBroadcastBytes / 2; }), "chunks");
  CHECK(Offer::decode(ByteVector(limits::kOfferBytes + 1)).status().code() == Code::kInvalidArgument);
  ByteVector cut = offer().encode();
  cut.pop_back();
  CHECK(Offer::decode(cut).status().code() == Code::kInvalidArgument);
}

TEST_CASE("the chunks together are all bytes of all regions, in order") {
  const ChunkMap map(offer());
  REQUIRE(map.chunks() == 4);
  CHECK(map.ranges(0) == std::vector<PartRange>{{0, 0, 4096}});
  CHECK(map.ranges(1) == std::vector<PartRange>{{0, 4096, 904}, {1, 0, 1}, {2, 0, 3191}});
  CHECK(map.ranges(2) == std::vector<PartRange>{{2, 3191, 4096}});
  CHECK(map.ranges(3) == std::vector<PartRange>{{2, 7287, 905}});
  CHECK(map.chunk_bytes(3) == 905);
}

TEST_CASE("regions that differ are refused with the first difference") {
  auto here = offer().parts;
  CHECK(check_same_parts(here, offer().parts).ok());
  here[1].bytes = 2;
  const Status status = check_same_parts(here, offer().parts);
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.text().find("region 1 of this reader is w2 with 2 bytes") != std::string::npos);
  here.pop_back();
  CHECK(check_same_parts(here, offer().parts).code() == Code::kInvalidArgument);
}

TEST_CASE("a place travels without a change, and a wrong one is refused") {
  for (const Place& place : {Place{4, 0, ""}, Place{4, 9, "10.0.0.1:4000"}}) {
    const auto again = Place::decode(place.encode());
    REQUIRE(again.has_value());
    CHECK(*again == place);
  }
  for (const Place& place : {Place{0, 0, ""}, Place{4, 4, "a:1"}, Place{4, 9, ""}, Place{4, 0, "a:1"},
                             Place{4, 9, "a b:1"}, Place{4, 9, std::string(256, 'a')}})
    CHECK(Place::decode(place.encode()).status().code() == Code::kInvalidArgument);
}

}  // namespace slime::kv::offer_test
