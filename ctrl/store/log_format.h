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

// Encodes and decodes the entries of the shared log of commands, and its snapshots. Other programs
// may write to the store, so decoding is strict and refuses anything that is not encoded as here:
// replicas that understood an entry differently would have different registries from then on.
namespace slime::ctrl {

// Version of the log's rules. All nanoctrl that share a log need the same version. Raise it with
// every change to the effect of a command, to a limit that a command is checked against, or to the
// encoding. Version 2 added keys of scopes. Version 3 added quotas of bytes and tokens for scopes,
// and owners of peers.
inline constexpr std::uint64_t kLogFormat = 3;
inline constexpr std::uint64_t kLogFormatQuotas = 3;
// The oldest version of a log that can be read. Its entries keep their meaning, except that
// commands beyond a scope's quota now have no effect. The next snapshot converts the log to
// kLogFormat.
inline constexpr std::uint64_t kLogFormatRead = 1;
// Most bytes of an entry. Large enough for the largest request body after its default values were
// filled in.
inline constexpr std::size_t kEntryBytes = std::size_t{8} << 20;
// Most leases that one RenewCommand in the log renews.
inline constexpr std::size_t kRenewalsPerEntry = 1024;

// Id and position of an entry in the log: milliseconds since 1970 by the store's clock, and a
// counter within that millisecond.
struct EntryId {
  std::uint64_t ms = 0;
  std::uint64_t sequence = 0;
  auto operator<=>(const EntryId&) const = default;

  static std::optional<EntryId> parse(std::string_view text);  // "1700000000000-0"
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] TimePoint time() const;
};

struct LogEntry {
  std::string engine;        // name of the engine that has appended the entry
  std::uint64_t number = 0;  // number of the command within that engine
  Command command;
};
struct EncodedEntry {
  std::string head;  // JSON text: engine, number, kind of the command, its short fields
  std::string body;  // JSON text: the command's long fields, as in an HTTP body; may be empty
  [[nodiscard]] std::size_t size() const { return head.size() + body.size(); }
};
EncodedEntry encode_entry(const LogEntry& entry);
// Errors: kUnimplemented for an unknown kind of command; kCorrupt for any other problem.
Result<LogEntry> decode_entry(std::string_view head, std::string_view body);

// Encodes records as chunks, each small enough for one value in Redis.
std::vector<std::string> encode_chunks(const std::vector<Record>& records);
// Decodes the records of a chunk and appends them to `out`. kCorrupt when the chunk is malformed.
Status decode_chunk(std::string_view chunk, std::vector<Record>& out);

// Returns the options that influence the effect of commands, as a text. Replicas compare this text.
std::string describe_rules(const RegistryOptions& options, std::uint64_t format = kLogFormat);

}  // namespace slime::ctrl
