#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fork.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "tests/support/forked.h"
#include "tests/support/sanitizers.h"

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

namespace {

// Redirects stderr to /dev/null while this object lives.
class Quiet {
 public:
  Quiet() : before_(::fcntl(2, F_DUPFD_CLOEXEC, 0)) {
    const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    REQUIRE(null.valid());
    REQUIRE(::dup2(null.get(), 2) == 2);
  }
  ~Quiet() { ::dup2(before_.get(), 2); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  UniqueFd before_;
};

}  // namespace

// Not with a sanitizer, whose own locks may be held by a thread of the parent at the fork.
TEST_CASE("a child of fork() logs, whatever other threads of its parent were logging" *
          doctest::skip(test::kSanitized)) {
  const std::string path = str("/tmp/slime_test_fork_", getpid(), ".log");
  set_log_level(LogLevel::kDebug);
  for (const bool to_file : {false, true}) {
    CAPTURE(to_file);
    const Quiet quiet;
    if (to_file) REQUIRE(log_to_file(path).ok());
    std::atomic<bool> stop{false};
    std::vector<std::thread> loggers;
    for (int i = 0; i < 3; ++i) {
      loggers.emplace_back([&stop] {
        while (!stop) log(LogLevel::kDebug, "parent", "a line that is long enough to take a while");
      });
    }
    const auto log_a_line = [] {
      log(LogLevel::kDebug, "child", "a line");
      return true;
    };
    const int children = test::scaled(100);
    int good = 0;
    int tried = 0;
    for (; tried < children && good == tried; ++tried) good += test::forked(log_a_line);
    stop = true;
    for (std::thread& logger : loggers) logger.join();
    CHECK(good == children);
  }
  set_log_level(LogLevel::kWarning);
  unlink(path.c_str());
}
