#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/limits.h"

namespace slime::cache::limits {

using slime::limits::kNameBytes;

// Any bytes; keys are often hashes, or paths with a prefix.
inline constexpr std::size_t kKeyBytes = 1024;
// The smallest slab: a page. The table entry of a smaller slab would cost more than the slab saves.
inline constexpr std::uint64_t kMinSlabBytes = 4096;
inline constexpr std::uint64_t kMaxSlabBytes = std::uint64_t{1} << 30;
// The default of the largest slab: one frame of bulk data.
inline constexpr std::uint64_t kSlabBytes = 256 * 1024;

// The slowest transfer that does not count as dead: the timeouts below grow by a second for each
// kSlowestBytesPerSecond of an object.
inline constexpr std::uint64_t kSlowestBytesPerSecond = 64 << 20;
// A writer that has not sealed by then counts as dead: its slabs are quarantined.
inline constexpr Nanos kReservationTtl = std::chrono::seconds(30);
// A reader that has not released by then counts as dead. Equals the deadline of a read.
inline constexpr Nanos kLeaseTtl = std::chrono::seconds(30);
// Reservations and leases of one client, dead or alive: bounds the memory that a bug or a stopped
// process can quarantine.
inline constexpr std::size_t kReservationsPerClient = 16384;
inline constexpr std::size_t kLeasesPerClient = 65536;
// Above the high mark the least recently used objects are evicted until the low mark is reached.
inline constexpr unsigned kHighPercent = 95;
inline constexpr unsigned kLowPercent = 90;
// Expired and evicted objects that one request handles, so that a mass expiry does not delay one
// request.
inline constexpr std::size_t kExpiriesPerTurn = 256;
inline constexpr std::size_t kEvictionsPerTurn = 64;

// Objects in one call: less than a millisecond of the server's loop.
inline constexpr std::size_t kBatchObjects = 1024;
// Extents in one reply: 16 MiB of reply, 64 GiB in scattered slabs of 64 KiB.
inline constexpr std::size_t kBatchExtents = std::size_t{1} << 20;
// Bytes that put_many reserves at a time, so that a batch never needs the whole arena.
inline constexpr std::uint64_t kBatchBytes = 64 << 20;
// Objects in the first look-up of a get_many, before their sizes are known.
inline constexpr std::size_t kFirstLookup = 64;

// Staging memory of a client: enough in flight to hide the round trip.
inline constexpr std::size_t kStagingBufferBytes = 2 << 20;
inline constexpr std::size_t kStagingBuffers = 8;
// Calls of a client that wait for its thread; further ones end with kResourceExhausted.
inline constexpr std::size_t kWaitingCalls = 1024;
// One-sided operations in flight for one call.
inline constexpr std::size_t kOperationsInFlight = 4;

}  // namespace slime::cache::limits
