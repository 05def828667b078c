#include "agent/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "base/str.h"

namespace slime::agent {
namespace {

std::atomic<std::uint32_t> generation{0};

void in_child() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

ForkGuard::ForkGuard() : process_(getpid()) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, in_child);
  generation_ = generation.load(std::memory_order_relaxed);
}

bool ForkGuard::forked() const { return generation_ != generation.load(std::memory_order_relaxed); }

Status ForkGuard::status() const {
  return Status(Code::kUnavailable, str("this agent belongs to process ", process_,
                                        "; make a new one in the child after fork()"));
}

}  // namespace slime::agent
