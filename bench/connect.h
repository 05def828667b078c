#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace slime::bench {

struct ConnectOptions {
  std::string provider = "auto";
  std::string mode = "thread";
  std::uint32_t count = 100;  // connections of one round
  std::uint64_t size = 64;    // of the first call, and of its reply
  std::uint32_t rounds = 1;
};

// How long it takes from an agent that knows nobody to the reply of its first call: connecting and the call.
// Each one with an agent of its own, whose start and end do not count. The report as one JSON object on one
// line.
Result<std::string> measure_connect(const ConnectOptions& options);

}  // namespace slime::bench
