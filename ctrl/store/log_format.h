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

// The encoding of a shared log of commands and of its snapshots. Other programs may write to that
// store, so decoding is strict: anything not exactly as encoded here is refused, because replicas
// that interpret an entry differently would diverge from then on.
namespace slime::ctrl {

// Version of the log's rules; nanoctrls of different versions cannot share a log. Raise it with
// every change to the effect of a command, to a limit that commands are checked against, or to
// these encodings. 2: scopes have keys. 3: scopes have quotas of bytes and tokens, and peers have
// owners.
inline constexpr std::uint64_t kLogFormat = 3;
inline constexpr std::uint64_t kLogFormatQuotas = 3;
// The oldest version that is readable. Its entries have the same meaning, except that commands
// beyond a scope's quota have no effect now. The next snapshot converts such a log to the current
// version.
inline constexpr std::uint64_t kLogFormatRead = 1;
// Largest entry. Fits the largest request body with the defaults of its fields written out.
inline constexpr std::size_t kEntryBytes = std::size_t{8} << 20;
// Most leases in one RenewCommand of the log.
inline constexpr std::size_t kRenewalsPerEntry = 1024;

// The position of an entry: milliseconds since 1970 by the store's clock, and a counter within a
// millisecond.
struct EntryId {
  std::uint64_t ms = 0;
  std::uint64_t sequence = 0;
  auto operator<=>(const EntryId&) const = default;

  static std::optional<EntryId> parse(std::string_view text);  // "1700000000000-0"
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] TimePoint time() const;
};

struct LogEntry {
  std::string engine;        // name of the engine that appended the entry
  std::uint64_t number = 0;  // number of the command within that engine
  Command command;
};
struct EncodedEntry {
  std::string head;  // JSON: engine, number, kind of command, short fields
  std::string body;  // JSON: long fields, as in HTTP; may be empty
  [[nodiscard]] std::size_t size() const { return head.size() + body.size(); }
};
EncodedEntry encode_entry(const LogEntry& entry);
// kUnimplemented for an unknown kind of command, kCorrupt for any other problem.
Result<LogEntry> decode_entry(std::string_view head, std::string_view body);

// Encodes records in chunks, each small enough for one Redis value.
std::vector<std::string> encode_chunks(const std::vector<Record>& records);
// Appends the chunk's records to `out`. kCorrupt when malformed.
Status decode_chunk(std::string_view chunk, std::vector<Record>& out);

// Returns the options that affect commands, as text for people and for comparison.
std::string describe_rules(const RegistryOptions& options, std::uint64_t format = kLogFormat);

}  // namespace slime::ctrl
