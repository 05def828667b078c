#pragma once

#include <string.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/random.h"

namespace slime {

// Secret bytes. Overwrites them on destruction and assignment, has no way to print them, and
// compares in constant time.
class Secret {
 public:
  Secret() = default;
  explicit Secret(Bytes bytes) : bytes_(bytes.begin(), bytes.end()) {}
  static Secret random(std::size_t bytes) {
    Secret out;
    out.bytes_.resize(bytes);
    random_bytes(out.bytes_);
    return out;
  }
  // Decodes a secret of `bytes` bytes; nullopt if the text is not exactly so many bytes in
  // hexadecimal.
  static std::optional<Secret> from_hex(std::string_view text, std::size_t bytes) {
    Secret out;
    out.bytes_.resize(bytes);
    if (!slime::from_hex(text, out.bytes_)) return std::nullopt;
    return out;
  }
  Secret(const Secret&) = default;
  Secret(Secret&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Secret& operator=(Secret other) noexcept {
    bytes_.swap(other.bytes_);
    return *this;
  }
  ~Secret() {
    if (std::byte* const data = bytes_.data(); data != nullptr) ::explicit_bzero(data, bytes_.size());
  }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }

  friend bool operator==(const Secret& a, const Secret& b) {
    if (a.size() != b.size()) return false;
    std::byte difference{};
    for (std::size_t i = 0; i < a.size(); ++i) difference |= a.bytes_[i] ^ b.bytes_[i];
    return difference == std::byte{};
  }

 private:
  ByteVector bytes_;
};

}  // namespace slime
