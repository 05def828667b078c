#pragma once

#include <doctest/doctest.h>

#include "transport/huge_pages.h"

namespace slime::transport::testing {

// Whether this machine's pool has so many huge pages for a test; says so where it has not.
inline bool pool_has(std::size_t pages) {
  const HugePages pool = read_huge_pages();
  if (pool.page_bytes != 0 && pool.available() >= pages) return true;
  MESSAGE("SKIPPED: this needs ", pages, " free huge pages, this machine has ", pool.available(),
          "; as root: sysctl vm.nr_hugepages=16");
  return false;
}

}  // namespace slime::transport::testing
