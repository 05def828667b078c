#pragma once

#include <cstdint>

#include "base/status.h"

namespace slime::agent {

// Notices that this process is a child made by fork() after the guard: its parent's threads do not exist
// here, and its sockets belong to the parent. Costs one load.
class ForkGuard {
 public:
  ForkGuard();
  [[nodiscard]] bool forked() const;
  // kUnavailable for use in the child.
  [[nodiscard]] Status status() const;

 private:
  std::uint64_t generation_;
  int process_;
};

}  // namespace slime::agent
