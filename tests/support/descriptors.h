#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <vector>

#include "base/unique_fd.h"

// UBSan makes a pipe to check whether an object is readable; without descriptors it reports healthy
// objects.
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
#define SLIME_SANITIZER_NEEDS_DESCRIPTORS
#endif
#endif

namespace slime::test {

// Raises the limit of open descriptors to at least `count`.
inline void allow_descriptors(rlim_t count) {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_cur >= count) return;
  REQUIRE_MESSAGE(limit.rlim_max >= count, "this test needs ", count, " descriptors");
  limit.rlim_cur = count;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

// While this object lives, the process can open only `spare` more descriptors. A closed one may be
// opened again.
class FewDescriptors {
 public:
  explicit FewDescriptors(int spare) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    // Finds the numbers of the next descriptors: the limit is the first number that must fail.
    std::vector<UniqueFd> next;
    for (int i = 0; i <= spare; ++i) {
      next.emplace_back(::fcntl(0, F_DUPFD_CLOEXEC, 0));
      REQUIRE(next.back().valid());
    }
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next.back().get());
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace slime::test
