#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/records.h"

// The bytes of a shared log of commands and of the snapshots beside it. Others write into that store too, so
// decoding is strict: whatever is not exactly as encoded here is refused, because replicas that understand an
// entry differently would differ from then on.
namespace slime::ctrl {

// Which rules the commands follow: nanoctrls of different numbers share no log. Raised with every change of
// what a command does to a registry, of a limit that it is checked against, or of these encodings.
// 2: scopes have keys. 3: scopes have quotas of bytes and tokens, and peers
// have owners.
inline constexpr std::uint64_t kLogFormat = 3;
inline constexpr std::uint64_t kLogFormatQuotas = 3;
// The oldest that is read, too: what a log of it has means the same now, and it has nothing of what is new;
// only what is beyond a scope's quota has no effect any more. It is one of ours with its next snapshot.
inline constexpr std::uint64_t kLogFormatRead = 1;
// One entry. A request's body of the largest size fits, with the defaults of its fields written out.
inline constexpr std::size_t kEntryBytes = std::size_t{8} << 20;
// Leases in one RenewCommand of the log.
inline constexpr std::size_t kRenewalsPerEntry = 1024;

// An entry's place: milliseconds since 1970 by the store's clock, and a counter within one.
struct EntryId {
  std::uint64_t ms = 0;
  std::uint64_t sequence = 0;
  auto operator<=>(const EntryId&) const = default;

  static std::optional<EntryId> parse(std::string_view text);  // "1700000000000-0"
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] TimePoint time() const;
};

struct LogEntry {
  std::string engine;        // who appended it
  std::uint64_t number = 0;  // which one of its commands this is
  Command command;
};
struct EncodedEntry {
  std::string head;  // JSON: who, and the kind of command with what is short
  std::string body;  // JSON: what is long, as in HTTP; may be empty
  [[nodiscard]] std::size_t size() const { return head.size() + body.size(); }
};
EncodedEntry encode_entry(const LogEntry& entry);
// kUnimplemented for a kind of command that is unknown here, kCorrupt for all else.
Result<LogEntry> decode_entry(std::string_view head, std::string_view body);

// Records in pieces that are neither too large for one value nor many.
std::vector<std::string> encode_chunks(const std::vector<Record>& records);
// Appends to `out`. kCorrupt.
Status decode_chunk(std::string_view chunk, std::vector<Record>& out);

// The options that decide what commands do, for people and for comparing.
std::string describe_rules(const RegistryOptions& options, std::uint64_t format = kLogFormat);

}  // namespace slime::ctrl
