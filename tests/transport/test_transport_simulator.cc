// Random runs of the software engine beside a model. The number of seeds comes from SLIME_SIM_SEEDS
// (10,000 by default); SLIME_SIM_SEED=S runs that one.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "tests/transport/simulator.h"

namespace slime::transport::testing {
namespace {

std::optional<std::uint64_t> number_from(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  REQUIRE_MESSAGE((end != text && *end == '\0'), name << " is not a number: " << text);
  return value;
}

}  // namespace

TEST_CASE("random operations under random faults keep every promise, whatever the seed") {
  const std::optional<std::uint64_t> one = number_from("SLIME_SIM_SEED");
  const std::uint64_t first = one.value_or(1);
  const std::uint64_t count = one ? 1 : number_from("SLIME_SIM_SEEDS").value_or(10'000);
  REQUIRE(count > 0);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Simulation simulation(seed);
    const std::string failure = simulation.run();
    REQUIRE_MESSAGE(failure.empty(), failure << "; again with SLIME_SIM_SEED=" << seed);
  }
  std::printf("%llu seeds from %llu\n", static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(first));
}

}  // namespace slime::transport::testing
