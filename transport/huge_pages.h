#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>

#include "base/result.h"

namespace slime::transport {

// The machine's pool of huge pages of the default size, as /proc/meminfo reports it.
struct HugePages {
  std::size_t page_bytes = 0;  // 0: this kernel has none
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  // the part of the free pages that is promised to mappings which have not touched it yet
  std::uint64_t reserved = 0;

  [[nodiscard]] std::uint64_t available() const { return free > reserved ? free - reserved : 0; }
};

// Parses /proc/meminfo. Values that are missing or are not numbers are zero in the result.
HugePages parse_huge_pages(std::istream& meminfo);
HugePages read_huge_pages();

// Returns an error that explains why `pool` cannot provide `bytes` bytes, and what to do about it.
Status no_huge_pages(const HugePages& pool, std::size_t bytes);

}  // namespace slime::transport
