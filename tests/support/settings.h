#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace slime::test {

// Settings of a test run from the environment. Thread: any.

// Returns a number from the environment, or `otherwise`.
std::int64_t setting(const char* name, std::int64_t otherwise);

// SLIME_TEST_PROVIDER: the provider of the tests' agents, "auto" by default. Tests of one provider
// name that provider instead.
std::string provider();
// The provider of endpoints without an agent, which need a specific provider: "tcp" instead of
// "auto".
std::string endpoint_provider();

// Returns SLIME_TEST_SCALE percent (default 100) of a count; at least 1.
int scaled(int count);

// Returns `bound` times SLIME_TEST_PATIENCE (default 1): bounds that only failures reach, for slow
// machines such as emulated ones.
Nanos patient(Nanos bound);

}  // namespace slime::test
