#pragma once

#include <chrono>
#include <cstdint>

#include "base/command_line.h"
#include "ctrl/limits.h"
#include "ctrl/registry/registry.h"

namespace slime::ctrl {

// The flags of what commands do to a registry. All nanoctrl over one Redis have the same, and so does a
// command that opens their store itself.
struct RuleFlags {
  double ttl_s = std::chrono::duration<double>(limits::kTtlDefault).count();
  std::uint64_t scope_bytes = limits::kRecordBytesPerScope;
  std::uint64_t scope_peers = limits::kPeersPerScope;

  // This object outlives the program's run(). `note`: behind each help text.
  void add_options(command_line::Command& command, const std::string& note);
  // Whole milliseconds, as Redis has its times.
  void apply(RegistryOptions& options) const;
};

}  // namespace slime::ctrl
