#include "tests/support/settings.h"

#include <algorithm>
#include <cstdlib>

namespace slime::test {

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

std::string provider() {
  const char* const name = std::getenv("SLIME_TEST_PROVIDER");
  return name == nullptr ? "auto" : name;
}

std::string endpoint_provider() {
  std::string name = provider();
  return name == "auto" ? "tcp" : name;
}

int scaled(int count) {
  return static_cast<int>(std::max<std::int64_t>(1, count * setting("SLIME_TEST_SCALE", 100) / 100));
}

Nanos patient(Nanos bound) { return bound * std::max<std::int64_t>(1, setting("SLIME_TEST_PATIENCE", 1)); }

}  // namespace slime::test
