#pragma once

#include <string_view>

#include "base/result.h"

// What texts of a peer must be.
namespace slime::rpc {

// A name of a service or method: 1 to kNameBytes bytes of UTF-8 without control characters.
Status validate_name(std::string_view what, std::string_view name);

}  // namespace slime::rpc
