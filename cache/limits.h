#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/limits.h"

namespace slime::cache::limits {

using slime::limits::kNameBytes;

// Keys are often hashes or paths with a prefix; any bytes.
inline constexpr std::size_t kKeyBytes = 1024;
// The smallest slab: a page. Below it the table entry would cost more than it saves.
inline constexpr std::uint64_t kMinSlabBytes = 4096;
inline constexpr std::uint64_t kMaxSlabBytes = std::uint64_t{1} << 30;
// The largest slab unless told otherwise: one frame of bulk data.
inline constexpr std::uint64_t kSlabBytes = 256 * 1024;

// The slowest transfer that is not taken for dead: a large object adds a second for each of these to what
// follows.
inline constexpr std::uint64_t kSlowestBytesPerSecond = 64 << 20;
// A writer that has not sealed by then is taken for dead: its slabs are quarantined.
inline constexpr Nanos kReservationTtl = std::chrono::seconds(30);
// A reader that has not released by then is taken for dead. As long as the deadline of a read.
inline constexpr Nanos kLeaseTtl = std::chrono::seconds(30);
// What one client may hold, dead or alive: it bounds what a bug or a stopped process can quarantine.
inline constexpr std::size_t kReservationsPerClient = 16384;
inline constexpr std::size_t kLeasesPerClient = 65536;
// Above the high mark the least recently used objects go until the low one is reached.
inline constexpr unsigned kHighPercent = 95;
inline constexpr unsigned kLowPercent = 90;
// Work that one request does for the others, so that a mass expiry stalls nobody.
inline constexpr std::size_t kExpiriesPerTurn = 256;
inline constexpr std::size_t kEvictionsPerTurn = 64;

// Objects in one call: below a millisecond of the server's loop.
inline constexpr std::size_t kBatchObjects = 1024;
// Extents in one reply: 16 MiB, 64 GiB of scattered slabs of 64 KiB.
inline constexpr std::size_t kBatchExtents = std::size_t{1} << 20;
// Bytes that one client call of put_many reserves at a time, so that a batch never needs the whole arena.
inline constexpr std::uint64_t kBatchBytes = 64 << 20;
// Objects of a get_many whose sizes nobody knows yet.
inline constexpr std::size_t kFirstLookup = 64;

// Staging of a client for memory that is not registered: this much in flight hides the round trip.
inline constexpr std::size_t kStagingBufferBytes = 2 << 20;
inline constexpr std::size_t kStagingBuffers = 8;
// One-sided operations of one call in flight.
inline constexpr std::size_t kOperationsInFlight = 4;

}  // namespace slime::cache::limits
