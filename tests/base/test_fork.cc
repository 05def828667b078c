#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>

#include "base/fork.h"

using namespace slime;

namespace {

struct Shared {
  std::mutex mutex;
  int value = 0;
};

}  // namespace

TEST_CASE("a child of fork() has one of its own, though its parent's is locked, and the parent keeps its") {
  static constinit PerProcess<Shared> shared;
  Shared& parents = shared.get();
  parents.value = 7;
  CHECK(&shared.get() == &parents);
  const std::uint64_t generation = fork_generation();
  const std::lock_guard held(parents.mutex);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Shared& own = shared.get();
    const bool good = fork_generation() == generation + 1 && &own != &parents && own.mutex.try_lock() &&
                      own.value == 0 && &shared.get() == &own;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(&shared.get() == &parents);
  CHECK(fork_generation() == generation);
}
