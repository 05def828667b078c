#pragma once

#include <string>
#include <string_view>

namespace slime::test {

// Returns the full path of a file of the source tree, such as "tests/rpc/golden".
std::string source_file(std::string_view path);

// Returns the full path of a file of the running test's build tree, such as "ctrl/nanoctrl".
std::string built_file(std::string_view path);

}  // namespace slime::test
