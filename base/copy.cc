#include "base/copy.h"

#include <algorithm>

namespace slime::detail {

// From the end to the begin, so that no load reads near the latest stores: their addresses within a
// page are higher.
void copy_backward(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kPiece = 1024;
  for (std::size_t left = bytes; left > 0;) {
    std::size_t piece = std::min(left, kPiece);
    // The compiler must not know that the length is small: GCC would copy by `rep movs` itself.
    asm("" : "+r"(piece));
    left -= piece;
    std::memcpy(to + left, from + left, piece);
  }
}

}  // namespace slime::detail
