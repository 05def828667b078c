#pragma once

#include <string>
#include <string_view>

namespace slime::test {

// The full path of a file of the source tree, such as "tests/rpc/golden".
std::string source_file(std::string_view path);

// The full path of a file of the build tree that the running test belongs to, such as "ctrl/nanoctrl".
std::string built_file(std::string_view path);

}  // namespace slime::test
