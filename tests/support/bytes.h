#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace slime::test {

// Tests compare megabytes, and are compiled with little optimization: a loop over bytes takes seconds there,
// these take one call. Thread: any.

// Whether both have the same bytes.
bool same(Bytes a, Bytes b);
// Whether each byte is `value`; of no bytes, too.
bool all_are(Bytes bytes, std::byte value);

}  // namespace slime::test
