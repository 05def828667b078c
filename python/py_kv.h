#pragma once

#include <cstdint>

#include "kv/move.h"
#include "python/binding.h"

namespace slime::python {

// Converts an int of 32 bits. Raises InvalidArgument, with `name` in the text, for other values.
std::uint32_t small_from(nb::handle value, const char* name);

// Returns the future of a transfer, which keeps `used` and `agent`, and its progress.
nb::tuple moving(kv::Move move, nb::object used, nb::object agent);

}  // namespace slime::python
