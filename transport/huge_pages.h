#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>

#include "base/result.h"

namespace slime::transport {

// The machine's pool of huge pages of the default size, as /proc/meminfo tells it.
struct HugePages {
  std::size_t page_bytes = 0;  // 0: this kernel has none
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  std::uint64_t reserved = 0;  // of the free pages: promised to mappings that have not touched them

  [[nodiscard]] std::uint64_t available() const { return free > reserved ? free - reserved : 0; }
};

// Returns zeros for values that are missing or are not numbers.
HugePages parse_huge_pages(std::istream& meminfo);
HugePages read_huge_pages();

// Returns an error that says why the pool cannot give this many bytes, and what to do about it.
Status no_huge_pages(const HugePages& pool, std::size_t bytes);

}  // namespace slime::transport
