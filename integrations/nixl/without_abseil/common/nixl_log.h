#pragma once

// Replaces the header of this name in a NIXL source tree, which needs abseil. NIXL's headers of the
// backend interface include it, but log only in functions that the plugin does not call.

#include <iostream>

// NOLINTBEGIN(readability-identifier-naming): the names are NIXL's
#define NIXL_ERROR std::cerr
#define NIXL_ASSERT(condition) static_cast<void>(condition)
// NOLINTEND(readability-identifier-naming)
