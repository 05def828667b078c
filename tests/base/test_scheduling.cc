#include <doctest/doctest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <thread>

#include "base/scheduling.h"

using namespace slime;

namespace {

// The scheduling attributes that sched_getattr(2) reports of a thread.
struct Attributes {
  std::uint32_t size = 0;
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;
  std::array<std::uint64_t, 2> rest{};
};

Attributes attributes_of_this_thread() {
  Attributes out;
  REQUIRE(::syscall(SYS_sched_getattr, 0, &out, sizeof out, 0) == 0);
  return out;
}

// Runs in a thread of its own, because a lower priority cannot be undone without rights.
template <class F>
void in_a_thread(F body) {
  std::thread(body).join();
}

}  // namespace

TEST_CASE("a background thread has the lowest priority") {
  in_a_thread([] {
    run_in_background();
    CHECK(::getpriority(PRIO_PROCESS, 0) == 19);
  });
}

TEST_CASE("short slices change neither the policy nor the nice value") {
  in_a_thread([] {
    REQUIRE(::setpriority(PRIO_PROCESS, 0, 5) == 0);
    const Attributes before = attributes_of_this_thread();
    run_in_short_slices();
    const Attributes after = attributes_of_this_thread();
    CHECK(after.policy == before.policy);
    CHECK(after.nice == 5);
    // kernels before 6.12 report no slice
    if (before.runtime_ns != 0) CHECK(after.runtime_ns == 100'000);
  });
}

TEST_CASE("a thread of another policy keeps its slices") {
  in_a_thread([] {
    const sched_param none{};
    REQUIRE(::sched_setscheduler(0, SCHED_BATCH, &none) == 0);
    const Attributes before = attributes_of_this_thread();
    run_in_short_slices();
    CHECK(attributes_of_this_thread().policy == SCHED_BATCH);
    CHECK(attributes_of_this_thread().runtime_ns == before.runtime_ns);
  });
}
