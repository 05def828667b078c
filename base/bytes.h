#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/copy.h"

namespace slime {

static_assert(std::endian::native == std::endian::little,
              "the wire formats are little endian and copied as they are");

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;
using ByteVector = std::vector<std::byte>;

// Copies the parts one after another. `to` must have room for all of them.
inline void copy_parts(std::span<const Bytes> parts, std::byte* to) {
  for (const Bytes part : parts) {
    // an empty part may have no address
    if (!part.empty()) copy_bytes(to, part.data(), part.size());
    to += part.size();
  }
}

namespace detail {
void append_many(ByteVector& out, Bytes bytes);
}

// Appends `bytes`, which are not in `out`. As fast as copy_bytes().
inline void append_bytes(ByteVector& out, Bytes bytes) {
  if (bytes.size() < kSlowCopyBytes)
    out.insert(out.end(), bytes.begin(), bytes.end());
  else
    detail::append_many(out, bytes);
}

inline Bytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads fixed-size fields and length-prefixed texts from a peer's bytes. Reading past the end sets
// failed() for good and yields zeros, so a decoder reads all fields and checks once.
class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : bytes_(bytes) {}

  // Reads one value of type T. Not for bool: a peer's byte may be neither 0 nor 1.
  template <class T>
  requires(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>) T read() {
    T value{};
    const Bytes raw = take(sizeof(T));
    if (raw.size() == sizeof(T)) std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }
  // Returns the next `size` bytes, borrowed from the input. If there are fewer, returns an empty
  // span and sets failed().
  Bytes take(std::size_t size) {
    if (failed_ || size > bytes_.size()) {
      failed_ = true;
      return {};
    }
    const Bytes out = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return out;
  }
  // Reads a u16 length and that many bytes. A length above `limit` sets failed().
  std::string text(std::size_t limit) {
    const std::size_t size = read<std::uint16_t>();
    if (size > limit) failed_ = true;
    return std::string(as_text(take(size)));
  }
  [[nodiscard]] std::size_t remaining() const { return bytes_.size(); }
  [[nodiscard]] bool failed() const { return failed_; }
  // Returns whether the fields that were read make up the whole input: no byte is left or missing.
  [[nodiscard]] bool complete() const { return !failed_ && bytes_.empty(); }

 private:
  Bytes bytes_;
  bool failed_ = false;
};

// Appends fields to a vector in the format that ByteReader reads.
class ByteWriter {
 public:
  explicit ByteWriter(ByteVector& out) : out_(out) {}

  // Appends one value. Not for types with padding: the padding would send bytes of this process's
  // stack.
  template <class T>
  requires(std::has_unique_object_representations_v<T> ||
           std::is_floating_point_v<T>) void write(const T& value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  void append(Bytes bytes) { append_bytes(out_, bytes); }
  // Appends a u16 length and the text. The text must not exceed 65,535 bytes: callers check their
  // own limits before.
  void text(std::string_view value);

 private:
  ByteVector& out_;
};

// Returns lower-case hexadecimal digits.
std::string to_hex(Bytes bytes);
// Decodes hexadecimal digits into `out`. Returns false if the text is not exactly 2 * out.size()
// digits.
bool from_hex(std::string_view text, MutableBytes out);

}  // namespace slime
