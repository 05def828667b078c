#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/str.h"
#include "kv/broadcast.h"
#include "tests/support/settings.h"

namespace slime::kv::test {

// The byte at a place of a region of a version of a broadcast.
inline std::byte broadcast_byte(std::uint64_t version, std::size_t part, std::uint64_t at) {
  return static_cast<std::byte>(1 + (at * 131 + at / 4096 * 17 + part * 29 + version * 101) % 251);
}

// The regions of one process.
struct Parts {
  explicit Parts(const std::vector<std::uint64_t>& sizes) {
    for (const std::uint64_t size : sizes) bytes.emplace_back(size);
  }
  void fill(std::uint64_t version) {
    for (std::size_t part = 0; part < bytes.size(); ++part)
      for (std::uint64_t at = 0; at < bytes[part].size(); ++at)
        bytes[part][at] = broadcast_byte(version, part, at);
  }
  // As fill(), while readers may still read what they will not keep: ThreadSanitizer does not look.
  __attribute__((no_sanitize("thread"))) void fill_while_read(std::uint64_t version) {
    for (std::size_t part = 0; part < bytes.size(); ++part) {
      std::byte* const out = bytes[part].data();
      const std::uint64_t size = bytes[part].size();
      for (std::uint64_t at = 0; at < size; ++at) out[at] = broadcast_byte(version, part, at);
    }
  }
  [[nodiscard]] std::uint64_t wrong_bytes(std::uint64_t version) const {
    std::uint64_t wrong = 0;
    for (std::size_t part = 0; part < bytes.size(); ++part)
      for (std::uint64_t at = 0; at < bytes[part].size(); ++at)
        wrong += bytes[part][at] != broadcast_byte(version, part, at) ? 1 : 0;
    return wrong;
  }
  [[nodiscard]] std::vector<NamedMemory> named() {
    std::vector<NamedMemory> out;
    for (std::size_t part = 0; part < bytes.size(); ++part) out.push_back({str("w", part), bytes[part]});
    return out;
  }
  std::vector<std::vector<std::byte>> bytes;
};

// Returns the options of broadcasts whose processes die or freeze. The chunks are small, so that a
// test can catch a transfer on its way.
inline BroadcastOptions fault_options() {
  return {.fan_out = 1,
          .chunk_bytes = 64 << 10,
          .patience = slime::test::patient(std::chrono::milliseconds(600))};
}

}  // namespace slime::kv::test
