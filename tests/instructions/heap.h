#pragma once

#include <cstdint>

namespace slime::testing {

// How often this program, in all its threads, has called operator new.
std::uint64_t heap_allocations();

}  // namespace slime::testing
