#include "base/bytes.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace slime {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

namespace detail {

void append_many(ByteVector& out, Bytes bytes) {
  const std::size_t before = out.size();
  // Before the comparison of addresses, since it may move the vector.
  if (bytes.size() > out.capacity() - before)
    out.reserve(std::max(2 * out.capacity(), before + bytes.size()));
  const bool slow = is_slow_copy(out.data() + before, bytes.data());
  // For pieces this small memcpy() does not use `rep movsb`. copy_bytes() would need a target that
  // is zeroed before, which takes longer: 1.71 instead of 1.26 us for 64 KiB.
  const std::size_t most = slow ? kSlowCopyBytes - 64 : bytes.size();
  while (!bytes.empty()) {
    std::size_t piece = std::min(most, bytes.size());
    asm("" : "+r"(piece));  // else GCC may copy by `rep movs` itself, as it knows the bound
    out.insert(out.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(piece));
    bytes = bytes.subspan(piece);
  }
}

}  // namespace detail

void ByteWriter::text(std::string_view value) {
  SLIME_CHECK(value.size() <= std::numeric_limits<std::uint16_t>::max());
  write(static_cast<std::uint16_t>(value.size()));
  append(as_bytes(value));
}

std::string to_hex(Bytes bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    out.push_back(kDigits[std::to_integer<std::size_t>(b >> 4)]);
    out.push_back(kDigits[std::to_integer<std::size_t>(b & std::byte{15})]);
  }
  return out;
}

bool from_hex(std::string_view text, MutableBytes out) {
  if (text.size() != out.size() * 2) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int high = hex_digit(text[2 * i]);
    const int low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<std::byte>(high * 16 + low);
  }
  return true;
}

}  // namespace slime
