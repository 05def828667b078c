#include "ctrl/commands/rule_flags.h"

#include "base/clock.h"

namespace slime::ctrl {

void RuleFlags::add_options(command_line::Command& command, const std::string& note) {
  command.option("--ttl", ttl_s, "seconds that a peer stays registered without a heartbeat" + note)
      .show_default()
      .in_range(0.1, 86400.0);
  command.option("--scope-bytes", scope_bytes, "limit of the memory of one scope's records, in bytes" + note)
      .show_default()
      .in_range(static_cast<int>(limits::kRecordBytesPerScopeMin),
                static_cast<int>(limits::kRecordBytesTotal));
  command.option("--scope-peers", scope_peers, "limit of peers in one scope" + note)
      .show_default()
      .in_range(1, static_cast<int>(limits::kPeersPerScopeMax));
}

void RuleFlags::apply(RegistryOptions& options) const {
  options.ttl = std::chrono::round<std::chrono::milliseconds>(to_nanos(ttl_s));
  options.record_bytes_per_scope_max = scope_bytes;
  options.peers_per_scope_max = scope_peers;
}

}  // namespace slime::ctrl
