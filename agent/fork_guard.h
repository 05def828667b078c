#pragma once

#include <cstdint>

#include "base/status.h"

namespace slime::agent {

// Detects that this process is a child, forked after the guard was made: the parent's threads do
// not exist here, and its sockets belong to the parent. Costs one load.
class ForkGuard {
 public:
  ForkGuard();
  [[nodiscard]] bool forked() const;
  // Returns kUnavailable, for use in the child.
  [[nodiscard]] Status status() const;

 private:
  std::uint64_t generation_;
  int process_;
};

}  // namespace slime::agent
