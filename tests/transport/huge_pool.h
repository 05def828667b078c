#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>

#include "base/unique_fd.h"
#include "transport/huge_pages.h"

namespace slime::transport::testing {

// The machine's pool of huge pages, for one test at a time: some count what is free, or take all of
// it.
class HugePool {
 public:
  HugePool()
      : lock_(::open((std::filesystem::temp_directory_path() / "slime-test-huge-pages").c_str(),
                     O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    REQUIRE(lock_.valid());
    REQUIRE(::flock(lock_.get(), LOCK_EX) == 0);
    state = read_huge_pages();
  }
  // Whether it has so many free; says so where it has not.
  [[nodiscard]] bool has(std::size_t pages) const {
    if (state.page_bytes != 0 && state.available() >= pages) return true;
    MESSAGE("SKIPPED: this needs ", pages, " free huge pages, this machine has ", state.available(),
            "; as root: sysctl vm.nr_hugepages=16");
    return false;
  }

  HugePages state;

 private:
  const UniqueFd lock_;
};

}  // namespace slime::transport::testing
