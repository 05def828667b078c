// The places of readers in a broadcast, without I/O.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/str.h"
#include "kv/tree.h"
#include "tests/support/settings.h"

namespace slime::kv::tree_test {
namespace {

using std::chrono::milliseconds;

// A tree whose readers each have a connection of their own, with the reader's number.
struct World {
  explicit World(std::uint32_t fan_out) : tree(fan_out, milliseconds(1000)) {}
  std::uint64_t join(std::uint64_t reader) {
    const auto place = tree.join(reader, str("host:", reader), now);
    REQUIRE(place.has_value());
    return note(reader, *place);
  }
  std::uint64_t move(std::uint64_t reader, std::uint64_t failed) {
    const auto place = tree.move(reader, tickets.at(reader), tickets.at(failed), now);
    REQUIRE(place.has_value());
    return note(reader, *place);
  }
  Status report(std::uint64_t reader, std::uint64_t ready, bool complete = false) {
    return tree.report(reader, tickets.at(reader), ready, complete, now);
  }
  // Returns the parent's number; 0 is the owner.
  std::uint64_t note(std::uint64_t reader, const Place& place) {
    tickets[reader] = place.ticket;
    const auto parent = std::find_if(tickets.begin(), tickets.end(),
                                     [&](const auto& each) { return each.second == place.parent; });
    REQUIRE(parent != tickets.end());
    CHECK(place.address == (place.parent == 0 ? std::string() : str("host:", parent->first)));
    return parent->first;
  }
  Tree tree;
  TimePoint now{std::chrono::hours(1)};
  std::map<std::uint64_t, std::uint64_t> tickets{{0, 0}};  // by reader
};

}  // namespace

TEST_CASE("readers fill the tree level by level, evenly") {
  World world(2);
  std::vector<std::uint64_t> parents;
  for (std::uint64_t reader = 1; reader <= 8; ++reader) parents.push_back(world.join(reader));
  CHECK(parents == std::vector<std::uint64_t>{0, 0, 1, 2, 1, 2, 3, 4});
  CHECK(world.tree.owner_children() == 2);
}

TEST_CASE("with a fan-out of one the readers are a chain") {
  World world(1);
  for (std::uint64_t reader = 1; reader <= 5; ++reader) CHECK(world.join(reader) == reader - 1);
}

TEST_CASE("a reader that leaves gives its place to the next") {
  World world(2);
  for (std::uint64_t reader = 1; reader <= 4; ++reader) world.join(reader);
  world.tree.leave(2, world.tickets[1]);  // another connection's ticket: nothing
  CHECK(world.tree.readers() == 4);
  world.tree.leave(1, world.tickets[1]);
  CHECK(world.join(5) == 0);
  world.tree.drop(2);
  CHECK(world.join(6) == 0);
  CHECK(world.tree.readers() == 4);
}

TEST_CASE("a child of a dead reader gets the nearest free place") {
  World world(2);
  for (std::uint64_t reader = 1; reader <= 4; ++reader) world.join(reader);
  world.tree.drop(1);
  CHECK(world.move(3, 1) == 0);
}

TEST_CASE("a parent that its child cannot read from is given to no reader until it reports") {
  World world(1);
  for (std::uint64_t reader = 1; reader <= 3; ++reader) world.join(reader);  // 0 - 1 - 2 - 3
  REQUIRE(world.report(1, 5, true).ok());
  REQUIRE(world.report(2, 4, true).ok());
  CHECK(world.move(3, 2) == 1);  // 2 has all bytes, so its own place at 1 is free at once
  world.tree.drop(3);
  CHECK(world.join(4) == 1);
  CHECK(world.report(2, 4).ok());
}

TEST_CASE("a reader may complain about its parent only") {
  World world(2);
  for (std::uint64_t reader = 1; reader <= 4; ++reader) world.join(reader);
  REQUIRE(world.report(2, 4, true).ok());
  CHECK(world.move(3, 2) == 1);  // its parent is 1
  CHECK(world.join(5) == 2);     // so 2 is still given
  CHECK(world.tree.owner_children() == 2);
}

TEST_CASE("a silent reader loses its place, a reader that has all bytes does not") {
  World world(1);
  world.join(1);
  world.join(2);
  REQUIRE(world.report(1, 9, true).ok());
  world.now += milliseconds(1001);
  CHECK(world.join(3) == 1);
  CHECK(world.report(2, 1).code() == Code::kAborted);
  CHECK(world.report(1, 9, true).ok());
}

TEST_CASE("no reader gets a place below itself") {
  World world(1);
  for (std::uint64_t reader = 1; reader <= 3; ++reader) world.join(reader);  // 0 - 1 - 2 - 3
  const auto place = world.tree.move(1, world.tickets[1], 0, world.now);
  REQUIRE(place.has_value());
  CHECK(place->parent == 0);
  world.tree.drop(1);  // 2 is without a parent, and 3 below it
  CHECK(world.join(4) == 0);
  CHECK(world.move(2, 1) == 4);
}

TEST_CASE("if no reader has a free place, the answer is to ask again") {
  World world(1);
  world.join(1);
  world.join(2);
  world.tree.drop(2);
  world.join(3);
  CHECK(world.tree.move(3, world.tickets[3], world.tickets[1], world.now).status().code() ==
        Code::kResourceExhausted);
  world.tree.drop(1);
  CHECK(world.move(3, 1) == 0);
}

TEST_CASE("another version forgets all readers, and uses no ticket again") {
  World world(2);
  world.join(1);
  const std::uint64_t earlier = world.tickets[1];
  world.tree.clear();
  CHECK(world.report(1, 1).code() == Code::kAborted);
  CHECK(world.join(1) == 0);
  CHECK(world.tickets[1] != earlier);
}

TEST_CASE("through any course of events the fan-out holds, and every chain ends at the owner") {
  const auto seed = static_cast<std::uint32_t>(slime::test::setting("SLIME_TEST_SEED", 20));
  INFO("SLIME_TEST_SEED=", seed);
  std::mt19937 random(seed);
  World world(3);
  std::map<std::uint64_t, std::uint64_t> parents;  // of the readers that live
  std::uint64_t next = 1;
  for (int step = 0; step < slime::test::scaled(1000); ++step) {
    world.now += milliseconds(1);
    const auto pick = [&] {
      return std::next(parents.begin(), static_cast<std::ptrdiff_t>(random() % parents.size()))->first;
    };
    const auto what = random() % 8;
    if (parents.size() < 3 || what < 2) {
      parents[next] = world.join(next);
      ++next;
    } else if (what == 2) {
      const std::uint64_t gone = pick();
      world.tree.drop(gone);
      parents.erase(gone);
    } else if (what == 3) {
      const std::uint64_t reader = pick();
      const auto place =
          world.tree.move(reader, world.tickets[reader], world.tickets[parents[reader]], world.now);
      if (place) parents[reader] = world.note(reader, *place);
    }
    for (const auto& [reader, parent] : parents) REQUIRE(world.report(reader, 1).ok());
    REQUIRE(world.tree.readers() == parents.size());
    for (const auto& [reader, parent] : parents) {
      REQUIRE(world.tree.children(world.tickets[reader]) <= 3);
      std::uint64_t at = reader;
      for (std::size_t hops = 0; at != 0 && parents.contains(at); ++hops, at = parents[at])
        REQUIRE(hops <= parents.size());
    }
    REQUIRE(world.tree.owner_children() <= 3);
  }
}

}  // namespace slime::kv::tree_test
