#pragma once

#include <string_view>

#include "base/result.h"

// Rules for names.
namespace slime::rpc {

// Checks the name of a service, method or region: 1 to kNameBytes bytes of UTF-8 without control
// characters. `what` ("service") is for the error text.
Status validate_name(std::string_view what, std::string_view name);

}  // namespace slime::rpc
