// Signals for real, of the test's own process and of children that it forks.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "base/on_signal.h"
#include "tests/support/eventually.h"
#include "tests/support/sanitizers.h"

namespace slime {
namespace {

using test::eventually;

// The thread sanitizer follows no child of a process with threads, and keeps a signal back while
// its thread is in read().
constexpr bool kNotHere = test::kThreadSanitizer;

std::atomic<int> g_calls{0};
std::atomic<bool> g_hold{false};
std::atomic<std::thread::id> g_thread;

void count() {
  g_thread = std::this_thread::get_id();
  ++g_calls;
  eventually([] { return !g_hold.load(); });
}
void another() {}

// In a child of fork(): runs `body` and ends with what it returns.
template <class F>
int in_child(F body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

TEST_CASE("a signal calls the task on another thread, and the process goes on") {
  REQUIRE(on_signal(SIGUSR2, &count).ok());
  REQUIRE(on_signal(SIGUSR2, &count).ok());  // asked twice, called once
  g_calls = 0;
  REQUIRE(::kill(::getpid(), SIGUSR2) == 0);
  REQUIRE(eventually([] { return g_calls == 1; }));
  CHECK(g_thread.load() != std::this_thread::get_id());
  REQUIRE(::raise(SIGUSR2) == 0);
  REQUIRE(eventually([] { return g_calls == 2; }));
}

TEST_CASE("signals that come while the task runs make one more call") {
  REQUIRE(on_signal(SIGUSR2, &count).ok());
  g_calls = 0;
  g_hold = true;
  REQUIRE(::raise(SIGUSR2) == 0);
  REQUIRE(eventually([] { return g_calls == 1; }));
  for (int i = 0; i < 5; ++i) REQUIRE(::raise(SIGUSR2) == 0);
  g_hold = false;
  REQUIRE(eventually([] { return g_calls == 2; }));
  REQUIRE(::raise(SIGUSR2) == 0);
  REQUIRE(eventually([] { return g_calls == 3; }));
}

TEST_CASE("the program's own handler stays, and so does a signal that is ignored on purpose" *
          doctest::skip(kNotHere)) {
  CHECK(in_child([] {
          ::signal(SIGUSR1, [](int) { ::_exit(7); });
          if (on_signal(SIGUSR1, &another).code() != Code::kAlreadyExists) return 1;
          ::raise(SIGUSR1);
          return 2;
        }) == 7);
  CHECK(in_child([] {
          ::signal(SIGUSR1, SIG_IGN);
          if (on_signal(SIGUSR1, &another).code() != Code::kAlreadyExists) return 1;
          ::raise(SIGUSR1);
          return 0;
        }) == 0);
}

TEST_CASE("a second task for one signal is refused") {
  REQUIRE(on_signal(SIGUSR2, &count).ok());
  CHECK(on_signal(SIGUSR2, &another).code() == Code::kAlreadyExists);
}

TEST_CASE("what is no signal, or cannot be handled, is refused") {
  for (const int number : {-1, 0, NSIG, 100'000, SIGKILL, SIGSTOP})
    CHECK(on_signal(number, &another).code() == Code::kInvalidArgument);
}

TEST_CASE(
    "a child of fork() ignores the signal, does not disturb its parent, and may call on_signal() itself" *
    doctest::skip(kNotHere)) {
  REQUIRE(on_signal(SIGUSR2, &count).ok());
  g_calls = 0;
  CHECK(in_child([] {
          ::raise(SIGUSR2);
          return 0;
        }) == 0);
  CHECK(in_child([] {
          if (!on_signal(SIGUSR2, &count).ok()) return 1;
          ::raise(SIGUSR2);
          return eventually([] { return g_calls == 1; }) ? 0 : 2;
        }) == 0);
  // What a child did would be seen here first.
  REQUIRE(::raise(SIGUSR2) == 0);
  REQUIRE(eventually([] { return g_calls >= 1; }));
  CHECK(g_calls == 1);
}

TEST_CASE("a system call that the signal interrupts goes on" * doctest::skip(kNotHere)) {
  REQUIRE(on_signal(SIGUSR2, &count).ok());
  g_calls = 0;
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  std::atomic<pthread_t> reader{};
  std::atomic<bool> ready{false};
  ssize_t got = 0;
  int error = 0;
  std::thread thread([&] {
    reader = ::pthread_self();
    ready = true;
    char byte = 0;
    got = ::read(pipe[0], &byte, 1);
    error = errno;
  });
  REQUIRE(eventually([&] { return ready.load(); }));
  REQUIRE(::pthread_kill(reader, SIGUSR2) == 0);
  REQUIRE(eventually([] { return g_calls == 1; }));
  REQUIRE(::write(pipe[1], "x", 1) == 1);
  thread.join();
  CHECK_MESSAGE(got == 1, error);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

}  // namespace
}  // namespace slime
