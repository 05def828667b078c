#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace slime {

// A program, usually this one again, in a process of its own. Speaks to it in lines over stdin and
// stdout. The child ends when its stdin ends, or by a signal; the kernel kills it when this process
// dies. Destroying this ends the child and waits for it. Thread: one.
class Child {
 public:
  // Runs the program, which is searched in PATH if it has no slash. The arguments come after its
  // name. `end_signal` ends the child; 0: the end of its stdin does.
  static Result<Child> start(const std::vector<std::string>& arguments,
                             const std::string& program = "/proc/self/exe", int end_signal = 0);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  Status write_line(std::string_view line);
  // Returns the next line without its end. kUnavailable when the child ended, kDeadlineExceeded,
  // kCancelled on Ctrl-C.
  Result<std::string> read_line(Nanos timeout);
  // Reads a line that begins with `word` and a space, and returns its rest. If the line is "ERROR "
  // and a Status as text, returns that error.
  Result<std::string> expect(std::string_view word, Nanos timeout);
  // Writes a command and reads the answer as expect() does.
  Result<std::string> ask(std::string_view command, std::string_view word, Nanos timeout);
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Returns whether read_line() has something to read.
  [[nodiscard]] bool readable() const;
  // Returns whether the child has closed its stdout, as a process does that ends.
  [[nodiscard]] bool ended() const;

 private:
  Child(pid_t pid, int end_signal, UniqueFd in, UniqueFd out)
      : pid_(pid), end_signal_(end_signal), in_(std::move(in)), out_(std::move(out)) {}
  pid_t pid_ = -1;
  int end_signal_ = 0;
  UniqueFd in_;
  UniqueFd out_;
  std::string buffer_;
};

// Makes SIGINT and SIGTERM set a flag, which interrupted() returns. Also ignores SIGPIPE.
void install_interrupt_flag();
[[nodiscard]] bool interrupted();

}  // namespace slime
