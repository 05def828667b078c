#include "bench/instructions.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace slime::bench {

Instructions::Instructions() {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.size = sizeof attributes;
  attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  counter_ = UniqueFd(static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1,
                                                 static_cast<unsigned long>(PERF_FLAG_FD_CLOEXEC))));
}

std::optional<std::uint64_t> Instructions::count() const {
  std::uint64_t out = 0;
  if (!counter_.valid() || ::read(counter_.get(), &out, sizeof out) != sizeof out) return std::nullopt;
  return out;
}

}  // namespace slime::bench
