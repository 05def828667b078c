#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace slime::test {

// Comparisons of large buffers in one library call: tests compare megabytes and are compiled with
// little optimization, so a loop over bytes would take seconds. Thread: any.

// Returns whether both have the same bytes.
bool same(Bytes a, Bytes b);
// Returns whether each byte is `value`; true for an empty span.
bool all_are(Bytes bytes, std::byte value);

}  // namespace slime::test
