#pragma once

#include <utility>

#include "base/result.h"

namespace slime::kv {

// Returns the outcome of a promise without a value. Not inlined: with the thread sanitizer GCC 12
// would warn that a member of the result is uninitialized, although no path reads it then.
[[gnu::noinline]] inline Result<None> outcome_of(Status status) {
  if (!status.ok()) return status;
  return None{};
}

}  // namespace slime::kv
