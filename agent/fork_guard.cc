#include "agent/fork_guard.h"

#include <unistd.h>

#include "base/fork.h"
#include "base/str.h"

namespace slime::agent {

ForkGuard::ForkGuard() : generation_(fork_generation()), process_(getpid()) {}

bool ForkGuard::forked() const { return generation_ != fork_generation(); }

Status ForkGuard::status() const {
  return Status(Code::kUnavailable, str("this agent belongs to process ", process_,
                                        "; make a new one in the child after fork()"));
}

}  // namespace slime::agent
