#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "tests/support/eventually.h"

namespace slime::test {

// Runs `work` in a child made by fork(). Returns whether the child ends in time, and work()
// returned true.
template <class Work>
bool forked(const Work& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(work() ? 0 : 1);
  int status = -1;
  const auto ended = [&] { return ::waitpid(child, &status, WNOHANG) == child; };
  if (!eventually(ended, patient(std::chrono::seconds(10)))) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace slime::test
