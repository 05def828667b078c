#pragma once

#include <cstddef>
#include <string_view>

namespace slime {

// Returns the length in bytes of the first character of a non-empty text; 0 if that character is
// invalid, which includes overlong forms, surrogates and numbers beyond the last code point.
std::size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace slime
