#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "rpc/limits.h"

namespace slime::rpc {

// Whether a call fails (kRequired) or goes without an entry if the peer takes no metadata.
enum class Need : std::uint8_t { kRequired, kOptional };

// A few texts by key that travel with a request, such as "traceparent" or a token. Keys and values
// are UTF-8. Keys are case-sensitive names without control characters, with one value each. Thread:
// one.
class Metadata {
 public:
  struct Entry {
    std::string key;
    std::string value;
    Need need = Need::kRequired;
  };

  // Adds an entry, or replaces the entry of this key. kInvalidArgument for an invalid key or value,
  // kResourceExhausted above kMetadataEntries or kMetadataBytes (rpc/limits.h). Changes nothing
  // after an error.
  Status set(std::string_view key, std::string_view value, Need need = Need::kRequired);
  void remove(std::string_view key);
  [[nodiscard]] std::optional<std::string_view> get(std::string_view key) const;

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }  // oldest first
  [[nodiscard]] bool has_required() const;

 private:
  std::vector<Entry> entries_;
  std::size_t bytes_ = 0;  // of keys and values
};

// Durations of a call. The server measures queue and handler with its own clock: clocks of two
// machines are never compared.
struct CallTiming {
  Nanos queue{};       // at the server, from the request to the begin of the handler
  Nanos handler{};     // from the begin of the handler to its answer
  Nanos network{};     // the rest, including the wait for a connection
  Nanos total{};       // the sum
  bool split = false;  // false: queue and handler are unknown, and part of `network`
};

// Metadata and timing of one call. The channel owns its contents from the call to the call's end.
struct CallContext {
  Metadata metadata;
  bool timed = false;        // asks for the server's times
  TimePoint began{};         // begin of the call; zero: set by the channel
  CallTiming timing{};       // set when the call has ended
  std::uint64_t ticket = 0;  // private to the channel

  // Computes total and network. Bounds the server's times by the total.
  void finish(TimePoint now);
};

namespace wire {

// Follows the names in a request with kFlagMetadata.
struct Extras {
  Metadata metadata;
  bool timed = false;
};
// Decodes extras. kCorrupt for bytes that encode_extras() would not write. `out` may be null, to
// check only.
Status decode_extras(ByteReader& in, Extras* out);
void encode_extras(const Metadata& metadata, bool timed, ByteVector& out);

// Precedes the text of a reply with kFlagTiming. In nanoseconds.
struct ServerTimes {
  std::uint64_t queue = 0;
  std::uint64_t handler = 0;
};
static_assert(sizeof(ServerTimes) == 16);

}  // namespace wire
}  // namespace slime::rpc
