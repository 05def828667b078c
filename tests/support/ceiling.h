#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace slime::test {

// A memory limit for one process: its own cgroup (version 2 or 1) below ours if possible, else
// RLIMIT_AS. The test passes argument() to the process, which calls go_below_ceiling(). The
// destructor removes the cgroup: the process must have ended and been reaped. Thread: one.
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
  std::string cgroup_;  // empty: RLIMIT_AS is used
};

// Puts this process and its children below a ceiling. An address space contains much besides
// memory, so RLIMIT_AS adds kCeilingSlack for later threads to the size mapped now.
inline constexpr std::uint64_t kCeilingSlack = 128 << 20;
Status go_below_ceiling(const std::string& argument);

// Returns the peak resident size of a process; empty once the process is gone.
std::optional<std::uint64_t> peak_resident_bytes(int pid);

}  // namespace slime::test
