#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace slime {

void check_failed(const char* file, int line, const char* text) noexcept {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, text);
  std::fflush(stderr);
  std::abort();
}

}  // namespace slime
