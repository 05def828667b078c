#include "base/scheduling.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace slime {
namespace {

// The first version of `struct sched_attr`, see sched_setattr(2). The header that declares it,
// <linux/sched/types.h>, of older versions of Linux cannot be included beside <sched.h>.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;  // the length of a slice, for SCHED_OTHER
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};

}  // namespace

void run_in_background() {
  constexpr int kNice = 19;
  // Linux has a nice value for each thread; 0 is the calling thread. Without the right to change it
  // the thread keeps its value.
  (void)::setpriority(PRIO_PROCESS, 0, kNice);
}

void run_in_short_slices() {
  constexpr std::uint64_t kSliceNs = 100'000;  // the shortest that Linux takes
  // Reads the attributes first, so that the policy and the nice value stay as they are.
  SchedulingAttributes attributes;
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime_ns = kSliceNs;
  (void)::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace slime
