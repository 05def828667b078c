#pragma once

#include <chrono>
#include <cstdint>

#include "base/command_line.h"
#include "ctrl/limits.h"
#include "ctrl/registry/registry.h"

namespace slime::ctrl {

// Flags that affect how the registry executes commands. Their values must be equal in all nanoctrl
// that share one Redis, and in each program that opens the store directly.
struct RuleFlags {
  double ttl_s = std::chrono::duration<double>(limits::kTtlDefault).count();
  std::uint64_t scope_bytes = limits::kRecordBytesPerScope;
  std::uint64_t scope_peers = limits::kPeersPerScope;

  // Adds the flags to `command`, with `note` at the end of each help text. This object must outlive
  // the run of the program's command line.
  void add_options(command_line::Command& command, const std::string& note);
  // Sets the options from the flags. Rounds the TTL to whole milliseconds, as Redis stores it.
  void apply(RegistryOptions& options) const;
};

}  // namespace slime::ctrl
