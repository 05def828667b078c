#pragma once

#include <cstddef>
#include <string_view>

namespace slime {

// The bytes of the first character of a text that is not empty; 0 when they are none, overlong forms,
// surrogates and what is beyond the last code point included.
std::size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace slime
