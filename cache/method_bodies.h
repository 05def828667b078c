#pragma once

// Requests and replies of the service "cache", for server.cc and client.cc only. They are msgpack
// arrays; a field may only be added at the end, with a default for peers that do not send it yet.
// README.md describes the methods.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "cache/stats.h"
#include "cache/store.h"
#include "rpc/codec.h"

namespace slime::cache::wire {

inline constexpr const char* kService = "cache";
inline constexpr const char* kReadRegion = "cache.read";
inline constexpr const char* kWriteRegion = "cache.write";

// Outcome of one object of a batch.
struct Outcome {
  std::uint8_t code = 0;
  std::string text;
  MSGPACK_DEFINE(code, text)

  Outcome() = default;
  explicit Outcome(const Status& status)
      : code(static_cast<std::uint8_t>(status.code())), text(status.ok() ? "" : status.text()) {}
  [[nodiscard]] Status status() const {
    return code == 0 ? Status() : Status(error_code_from_wire(code), text);
  }
};

// Encodes extents: offset and length of each as little-endian 64-bit numbers.
inline ByteVector pack_extents(const std::vector<Extent>& extents) {
  ByteVector out;
  out.reserve(extents.size() * sizeof(Extent));
  ByteWriter writer(out);
  for (const Extent& extent : extents) writer.write(extent);
  return out;
}
// Decodes the extents of an object of `length` bytes in an arena of `arena_bytes`. Returns nullopt
// if the bytes are not valid extents.
inline std::optional<std::vector<Extent>> unpack_extents(Bytes bytes, std::uint64_t length,
                                                         std::uint64_t arena_bytes) {
  std::vector<Extent> out(bytes.size() / sizeof(Extent));
  ByteReader reader(bytes);
  for (Extent& extent : out) {
    extent = reader.read<Extent>();
    if (extent.length == 0 || extent.length > length || extent.offset > arena_bytes ||
        extent.length > arena_bytes - extent.offset)
      return std::nullopt;
    length -= extent.length;
  }
  if (length != 0 || !reader.complete()) return std::nullopt;
  return out;
}

struct ReserveItem {
  std::string key;
  std::uint64_t length = 0;
  MSGPACK_DEFINE(key, length)
};
struct ReserveRequest {
  std::string space;
  bool replace = false;
  std::uint64_t ttl_ns = 0;  // 0: none
  std::vector<ReserveItem> items;
  MSGPACK_DEFINE(space, replace, ttl_ns, items)
};
struct Reserved {
  Outcome outcome;
  std::uint64_t version = 0;
  ByteVector extents;
  MSGPACK_DEFINE(outcome, version, extents)
};
struct ReserveReply {
  std::uint64_t ttl_ns = 0;
  std::vector<Reserved> items;
  MSGPACK_DEFINE(ttl_ns, items)
};

struct SealItem {
  std::uint64_t version = 0;
  std::uint64_t checksum = 0;
  MSGPACK_DEFINE(version, checksum)
};

struct Found {
  Outcome outcome;
  std::uint64_t version = 0;
  std::uint64_t length = 0;
  std::uint64_t checksum = 0;
  bool pinned = false;
  std::uint64_t lease = 0;  // set by lookup only, as are extents and ttl_ns
  ByteVector extents;
  // duration of the lease; 0 from an older server: see LookupReply::ttl_ns
  std::uint64_t ttl_ns = 0;
  MSGPACK_DEFINE(outcome, version, length, checksum, pinned, lease, extents, ttl_ns)
};
struct LookupReply {
  std::uint64_t ttl_ns = 0;  // shortest ttl_ns of `items`, for older clients
  std::vector<Found> items;
  MSGPACK_DEFINE(ttl_ns, items)
};

// Returns whether the lease of `found` is still valid when the time `took` has passed since the
// request left. The server began the lease after the request left, so the check is safe. Subtracts
// a hundredth of the lease for clocks of different speed. `shortest_ns`: LookupReply::ttl_ns, used
// if `found` has no ttl_ns.
inline bool lease_holds(const Found& found, std::uint64_t shortest_ns, Nanos took) {
  const std::uint64_t told = found.ttl_ns != 0 ? found.ttl_ns : shortest_ns;
  const Nanos ttl(static_cast<std::int64_t>(std::min<std::uint64_t>(told, INT64_MAX)));
  return took < ttl - ttl / 100;
}

using Outcomes = std::vector<Outcome>;
using Keys = std::vector<std::string>;
using Ids = std::vector<std::uint64_t>;

// The answer of the method `stats`, as maps from names to numbers, since people and other languages
// read it. A reader skips unknown names.
struct Stats {
  using Fields = std::map<std::string, std::uint64_t>;
  Fields totals;
  std::vector<Fields> classes;
  MSGPACK_DEFINE_MAP(totals, classes)

  Stats() = default;
  explicit Stats(const StoreStats& stats) {
    for_each_field(stats, [&](const char* name, std::uint64_t value) { totals[name] = value; });
    for (const ClassStats& size : stats.classes) {
      Fields& fields = classes.emplace_back();
      for_each_field(size, [&](const char* name, std::uint64_t value) { fields[name] = value; });
    }
  }
  [[nodiscard]] StoreStats stats() const {
    StoreStats out;
    for_each_field(out, [&](const char* name, std::uint64_t& value) { value = field(totals, name); });
    for (const Fields& fields : classes) {
      ClassStats& size = out.classes.emplace_back();
      for_each_field(size, [&](const char* name, std::uint64_t& value) { value = field(fields, name); });
    }
    return out;
  }

 private:
  static std::uint64_t field(const Fields& fields, const char* name) {
    const auto found = fields.find(name);
    return found == fields.end() ? 0 : found->second;
  }
};

}  // namespace slime::cache::wire
