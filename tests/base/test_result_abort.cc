#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/result.h"

using namespace slime;

TEST_CASE("using the value of a Result that holds an error aborts, and prints the error") {
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // removes the test framework's handler
    dup2(fds[1], STDERR_FILENO);
    const Result<int> result = Status(Code::kUnavailable, "worker:0 closed the connection");
    _exit(*result);
  }
  close(fds[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n = 0; (n = read(fds[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  close(fds[0]);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  CHECK_MESSAGE(text.find("unavailable: worker:0 closed the connection") != std::string::npos, text);
}
