#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "agent/operations/fixed_list.h"

namespace slime::agent {
namespace {

using Shared = std::shared_ptr<int>;

TEST_CASE("elements of a fixed list stay where they are, inside the object and outside") {
  for (const std::size_t count : {1U, 2U, 3U, 100U}) {
    CAPTURE(count);
    FixedList<Shared, 2> list;
    list.reserve(count);
    std::vector<const Shared*> places;
    for (std::size_t i = 0; i < count; ++i)
      places.push_back(&list.emplace_back(std::make_shared<int>(static_cast<int>(i))));
    REQUIRE(list.size() == count);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(&list[i] == places[i]);
      CHECK(*list[i] == static_cast<int>(i));
    }
    const auto* const begin = reinterpret_cast<const std::byte*>(&list);
    const auto* const first = reinterpret_cast<const std::byte*>(list.data());
    CHECK((first >= begin && first < begin + sizeof list) == (count <= 2));
  }
}

TEST_CASE("a fixed list destroys the elements that it has, and no others") {
  const Shared counted = std::make_shared<int>(0);
  for (const std::size_t count : {0U, 1U, 2U, 5U}) {
    CAPTURE(count);
    {
      FixedList<Shared, 2> list;
      list.reserve(6);
      for (std::size_t i = 0; i < count; ++i) list.emplace_back(counted);
      CHECK(static_cast<std::size_t>(counted.use_count()) == 1 + count);
    }
    CHECK(counted.use_count() == 1);
  }
}

}  // namespace
}  // namespace slime::agent
