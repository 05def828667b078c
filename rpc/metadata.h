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

// Tells what happens to a call with an entry if the peer takes no metadata: the call fails
// (kRequired), or is made without the entry (kOptional).
enum class Need : std::uint8_t { kRequired, kOptional };

// A few strings by key that travel with a request, such as "traceparent" or a token. Keys and
// values are UTF-8. Keys are case-sensitive, have no control characters, and have one value each.
// Thread: one.
class Metadata {
 public:
  struct Entry {
    std::string key;
    std::string value;
    Need need = Need::kRequired;
  };

  // Adds an entry, or replaces the entry of this key. kInvalidArgument for an invalid key or value,
  // kResourceExhausted above kMetadataEntries or kMetadataBytes (rpc/limits.h). On an error,
  // nothing is changed.
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

// Durations of the parts of a call. The server measures `queue` and `handler` with its own clock;
// times of clocks of two machines are never compared.
struct CallTiming {
  Nanos queue{};    // on the server, from the arrival of the request to the start of the handler
  Nanos handler{};  // on the server, from the start of the handler to its answer
  Nanos network{};  // the rest of `total`, including the wait for a connection
  Nanos total{};    // the sum
  // false: `queue` and `handler` are unknown, and their time is part of `network`
  bool split = false;
};

// Metadata and timing of one call. While the call runs, only the channel may use the members.
struct CallContext {
  Metadata metadata;
  bool timed = false;        // asks for the server's times
  TimePoint began{};         // begin of the call; if zero, the channel sets it
  CallTiming timing{};       // set when the call has ended
  std::uint64_t ticket = 0;  // private to the channel

  // Computes `total` and `network`. Limits `queue` and `handler` so that they do not exceed
  // `total`.
  void finish(TimePoint now);
};

namespace wire {

// The part of a request with kFlagMetadata that follows the names.
struct Extras {
  Metadata metadata;
  bool timed = false;
};
// Decodes extras. Returns kCorrupt for bytes that encode_extras() would not write. If `out` is
// null, only checks the bytes.
Status decode_extras(ByteReader& in, Extras* out);
void encode_extras(const Metadata& metadata, bool timed, ByteVector& out);

// The part of a reply with kFlagTiming that precedes the text. Times are in nanoseconds.
struct ServerTimes {
  std::uint64_t queue = 0;
  std::uint64_t handler = 0;
};
static_assert(sizeof(ServerTimes) == 16);

}  // namespace wire
}  // namespace slime::rpc
