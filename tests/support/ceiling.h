#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace slime::test {

// A bound for the memory of one process: a cgroup of its own (version 2 or 1) below ours where one can be
// made, else RLIMIT_AS. The test makes it, and gives argument() to the process, which calls
// go_below_ceiling() with that. Destroying it removes the cgroup: the process must have ended, and been
// waited for. Thread: one.
class Ceiling {
 public:
  explicit Ceiling(std::uint64_t bytes);
  ~Ceiling();
  Ceiling(const Ceiling&) = delete;
  Ceiling& operator=(const Ceiling&) = delete;

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // "cgroup:<folder>" or "rlimit:<bytes>".
  [[nodiscard]] std::string argument() const;

 private:
  const std::uint64_t bytes_;
  std::string cgroup_;  // empty: none could be made
};

// Puts this process, and what it starts, below a ceiling. An address space holds much that is no memory:
// RLIMIT_AS leaves kCeilingSlack for threads that start later, besides what is mapped now.
inline constexpr std::uint64_t kCeilingSlack = 128 << 20;
Status go_below_ceiling(const std::string& argument);

// The most that was resident of a process; nothing once it is gone.
std::optional<std::uint64_t> peak_resident_bytes(int pid);

}  // namespace slime::test
