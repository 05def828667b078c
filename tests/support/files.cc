#include "tests/support/files.h"

namespace slime::test {

std::string source_file(std::string_view path) { return std::string(SLIME_SOURCE_DIR "/").append(path); }

std::string built_file(std::string_view path) { return std::string(SLIME_BUILD_DIR "/").append(path); }

}  // namespace slime::test
