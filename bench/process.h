#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::bench {

// A program, most often this one again, in a process of its own, spoken to in lines over its stdin and
// stdout. The child ends when its stdin does, or by a signal that it wants; the kernel kills it when we die;
// destroying this ends it and waits for it. Thread: one.
class Child {
 public:
  // Runs the program with these arguments, which come after its name. `end_signal` is what it ends by, 0 when
  // it ends with its stdin.
  static Result<Child> start(const std::vector<std::string>& arguments,
                             const std::string& program = "/proc/self/exe", int end_signal = 0);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  Status write_line(std::string_view line);
  // The next line without its end; kUnavailable when the child ended, kDeadlineExceeded, kCancelled on
  // Ctrl-C.
  Result<std::string> read_line(Nanos timeout);
  // The next line, which begins with `word` and a space; the rest of it. kInternal with the child's own text
  // when it says "ERROR ...".
  Result<std::string> expect(std::string_view word, Nanos timeout);
  // Writes a command and reads the answer, which begins with `word`.
  Result<std::string> ask(std::string_view command, std::string_view word, Nanos timeout);
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Whether read_line() has something to do.
  [[nodiscard]] bool readable() const;
  // Whether it has closed its stdout, as a process does that ends.
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

// The other end: a line from stdin, nothing at its end. Blocks.
std::optional<std::string> read_command();
// A line to stdout, flushed.
void answer(std::string_view line);

// User and system CPU seconds of this process so far.
double cpu_seconds();
// Pages that the kernel gave to this process so far without a disk.
std::uint64_t page_faults();

// Makes SIGINT and SIGTERM set a flag that read_line and the runs look at.
void install_interrupt_flag();
[[nodiscard]] bool interrupted();

}  // namespace slime::bench
