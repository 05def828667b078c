#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace slime::test {

// What the environment says of a test run, in one place. Thread: any.

// A number from the environment, or `otherwise`.
std::int64_t setting(const char* name, std::int64_t otherwise);

// SLIME_TEST_PROVIDER: what agents of the tests run on; "auto" unless it is set. Tests that are about one
// provider name that.
std::string provider();
// The same for endpoints without an agent, which have one provider: "tcp" where agents would choose.
std::string endpoint_provider();

// `percent` of a count, as SLIME_TEST_SCALE says (100); at least 1.
int scaled(int count);

// SLIME_TEST_PATIENCE times (1) a bound that only a failure reaches: for slow machines, such as emulated
// ones.
Nanos patient(Nanos bound);

}  // namespace slime::test
