#include "tests/support/bytes.h"

#include <cstring>

namespace slime::test {

bool same(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

bool all_are(Bytes bytes, std::byte value) {
  // Each byte equals the byte before it.
  return bytes.empty() || (bytes[0] == value && same(bytes.first(bytes.size() - 1), bytes.subspan(1)));
}

}  // namespace slime::test
