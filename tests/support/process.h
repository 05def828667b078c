#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::test {

// How a process ended.
struct ExitState {
  bool signaled = false;
  int value = 0;  // the exit status, or the signal number
  [[nodiscard]] bool success() const { return !signaled && value == 0; }
};

// A child process of a test: stdin and stdout are pipes to the test, stderr is the test's. The
// destructor kills the child (SIGKILL) and reaps it, stopped or not. The kernel also kills the
// child when the thread that spawned it ends, so spawn from the test's main thread. Signals only
// this pid. Thread: one.
class Process {
 public:
  // argv[0] is a path. `environment` ("NAME=value") is added to the test's environment.
  static Result<Process> spawn(std::vector<std::string> argv, std::vector<std::string> environment = {});
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Returns the next line of stdout, without the newline. kDeadlineExceeded; kUnavailable at the
  // end of the stream. A program that prints a line when it is ready can be waited for with it.
  Result<std::string> read_line(Nanos timeout);
  Status write_line(std::string_view line);
  void close_stdin() { stdin_.reset(); }

  // Sends SIGSTOP, and waits until the process has stopped and executes no instruction.
  Status stop();
  Status resume();     // SIGCONT
  Status kill();       // SIGKILL; wait() or the destructor reaps it
  Status interrupt();  // SIGINT
  Status terminate();  // SIGTERM
  // Waits until the process has ended, and reaps it. kDeadlineExceeded. Later calls return the same
  // state.
  Result<ExitState> wait(Nanos timeout);

 private:
  Process(pid_t pid, UniqueFd in, UniqueFd out);
  Status send(int signal);
  void destroy() noexcept;

  pid_t pid_ = -1;
  bool reaped_ = false;
  ExitState exit_;
  UniqueFd stdin_;
  UniqueFd stdout_;
  std::string buffered_;
};

// Returns the path of a program in the directory of the running program, where test helpers are.
std::string program_beside_this(std::string_view name);

}  // namespace slime::test
