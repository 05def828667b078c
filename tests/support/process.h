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
  int value = 0;  // the exit status, or the signal's number
  [[nodiscard]] bool success() const { return !signaled && value == 0; }
};

// A program that a test runs in a process of its own: its stdin and stdout are pipes to the test, its stderr
// is the test's. Destroying it kills it (SIGKILL) and reaps it, stopped or not; the kernel kills it too when
// the thread that spawned it ends, so spawn from the test's own thread. Only this pid is ever signalled.
// Thread: one.
class Process {
 public:
  // argv[0] is a path. `environment` ("NAME=value") is added to ours.
  static Result<Process> spawn(std::vector<std::string> argv, std::vector<std::string> environment = {});
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  // The next line of its stdout, without the newline. kDeadlineExceeded, or kUnavailable at the end of the
  // stream. Doubles as the ready signal of a program that prints a line when it is.
  Result<std::string> read_line(Nanos timeout);
  Status write_line(std::string_view line);
  void close_stdin() { stdin_.reset(); }

  // SIGSTOP, and waits until it has stopped: after that it executes no instruction.
  Status stop();
  Status resume();     // SIGCONT
  Status kill();       // SIGKILL; wait() or the destructor reaps it
  Status interrupt();  // SIGINT: what a program is asked to end with
  Status terminate();  // SIGTERM
  // Waits until it has ended, and reaps it. kDeadlineExceeded. Asked again, it answers the same.
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

// The path of a program that lies in the same directory as the running one, as test helpers do.
std::string program_beside_this(std::string_view name);

}  // namespace slime::test
