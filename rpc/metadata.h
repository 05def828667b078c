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

// Whether a call may be made without an entry, where the peer is too old to take metadata.
enum class Need : std::uint8_t { kRequired, kOptional };

// A few texts by key that travel with a request: "traceparent", a token, whatever the two sides agree on.
// Keys and values are UTF-8; keys are names (no control characters), have one value each, and their case
// counts. Thread: one.
class Metadata {
 public:
  struct Entry {
    std::string key;
    std::string value;
    Need need = Need::kRequired;
  };

  // Adds the entry, or replaces that of the same key. kInvalidArgument for a key or value that is none,
  // kResourceExhausted above kMetadataEntries or kMetadataBytes (rpc/limits.h); then nothing has changed.
  Status set(std::string_view key, std::string_view value, Need need = Need::kRequired);
  void remove(std::string_view key);
  [[nodiscard]] std::optional<std::string_view> get(std::string_view key) const;

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }  // in the order they were set
  [[nodiscard]] bool has_required() const;

 private:
  std::vector<Entry> entries_;
  std::size_t bytes_ = 0;  // of keys and values
};

// Where the time of a call went, by its caller. The first two are durations that the server measured with its
// own clock: the clocks of two machines are never compared.
struct CallTiming {
  Nanos queue{};       // at the server, until its handler began
  Nanos handler{};     // until the handler answered
  Nanos network{};     // the rest: both ways, and the wait for a connection
  Nanos total{};       // the sum
  bool split = false;  // false: no answer told the first two, which are part of `network`
};

// What a call has besides its arguments. One for each call; it is the channel's from the call to its end.
struct CallContext {
  Metadata metadata;
  bool timed = false;        // asks the server for its two durations
  TimePoint began{};         // zero: when the channel gets it
  CallTiming timing{};       // when the call has ended
  std::uint64_t ticket = 0;  // the channel's

  // Makes the sum right: what the server tells can be no more than all of it.
  void finish(TimePoint now);
};

namespace wire {

// What follows the names in a request with kFlagMetadata.
struct Extras {
  Metadata metadata;
  bool timed = false;
};
// The one decoder. kCorrupt for whatever encode_extras() would not write; `out` may be null: only looks.
Status decode_extras(ByteReader& in, Extras* out);
void encode_extras(const Metadata& metadata, bool timed, ByteVector& out);

// What precedes the text of a reply with kFlagTiming.
struct ServerTimes {
  std::uint64_t queue = 0;  // nanoseconds
  std::uint64_t handler = 0;
};
static_assert(sizeof(ServerTimes) == 16);

}  // namespace wire
}  // namespace slime::rpc
