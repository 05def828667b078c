// A provider that Slime knows nothing of: one folder, and one line in a table.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/transport/socket_fixture.h"
#include "tests/transport/toy/toy_provider.h"
#include "transport/choice.h"

namespace slime::transport::testing {
namespace {

// What the peers 'a', which offers the toy before tcp, and 'b' choose: "toy: reason".
std::string chosen(std::uint8_t group_of_a, std::uint8_t group_of_b) {
  const auto provider = toy::make_toy_provider(group_of_b);
  const auto hint_of = [](std::uint8_t group) {
    auto device = toy::make_toy_provider(group)->open_device();
    REQUIRE(device.has_value());
    return (*device)->hint();
  };
  const std::vector<Offer> offers{{"toy", hint_of(group_of_a)}, {"tcp", {}}};
  const std::vector<Holding> holdings{{"toy", hint_of(group_of_b), {}, &provider->traits()}, {"tcp", {}, {}}};
  const auto choice = choose("a", offers, "b", holdings);
  REQUIRE(choice.has_value());
  return offers[choice->offer].provider + ": " + choice->reason;
}

TEST_CASE("a provider in a folder of its own keeps every promise of the transport") {
  run_conformance([] {
    return std::make_unique<SocketFixture>(
        []() -> Result<std::unique_ptr<Provider>> { return toy::make_toy_provider(); });
  });
}

TEST_CASE("a provider checks its own hints, and its reason is the reason of the choice") {
  CHECK(chosen(1, 1) == "toy: same group");
  CHECK(chosen(1, 2) == "tcp: 'a' and 'b' are of different groups");
}

TEST_CASE("a provider is one line in a table") {
  const std::vector<ProviderEntry> table{toy::toy_entry()};
  const auto made = make_provider("toy", table);
  REQUIRE(made.has_value());
  CHECK((*made)->name() == "toy");
  const auto missing = make_provider("tcp", table);
  CHECK(missing.status().code() == Code::kNotFound);
  CHECK(missing.status().text().find("this build has: toy") != std::string::npos);
  CHECK(make_provider("toy").status().code() == Code::kNotFound);
}

}  // namespace
}  // namespace slime::transport::testing
