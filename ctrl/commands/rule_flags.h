#pragma once

#include <chrono>
#include <cstdint>

#include "base/command_line.h"
#include "ctrl/limits.h"
#include "ctrl/registry/registry.h"

namespace slime::ctrl {

// Flags that affect the registry's commands. All nanoctrls that share one Redis, and each command
// that opens their store directly, need the same values.
struct RuleFlags {
  double ttl_s = std::chrono::duration<double>(limits::kTtlDefault).count();
  std::uint64_t scope_bytes = limits::kRecordBytesPerScope;
  std::uint64_t scope_peers = limits::kPeersPerScope;

  // This object outlives the program's run(). `note` is appended to each help text.
  void add_options(command_line::Command& command, const std::string& note);
  // Rounds times to whole milliseconds, as stored in Redis.
  void apply(RegistryOptions& options) const;
};

}  // namespace slime::ctrl
