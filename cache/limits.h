#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/limits.h"

namespace slime::cache::limits {

using slime::limits::kNameBytes;

// Most bytes of a key. A key may hold any bytes; keys are often hashes, or paths with a prefix.
inline constexpr std::size_t kKeyBytes = 1024;
// The smallest slab: a page. The table entry of a smaller slab would cost more than the slab saves.
inline constexpr std::uint64_t kMinSlabBytes = 4096;
inline constexpr std::uint64_t kMaxSlabBytes = std::uint64_t{1} << 30;
// Default size of the largest slab: one frame of bulk data.
inline constexpr std::uint64_t kSlabBytes = 256 * 1024;

// Slowest transfer whose client does not count as dead: kReservationTtl and kLeaseTtl grow by a
// second for each kSlowestBytesPerSecond of an object's length.
inline constexpr std::uint64_t kSlowestBytesPerSecond = 64 << 20;
// Time that a writer has from reserve to seal. A writer that has not sealed by then counts as dead:
// its slabs are quarantined.
inline constexpr Nanos kReservationTtl = std::chrono::seconds(30);
// Time that a reader has to release its lease. A reader that has not released it by then counts as
// dead. Equals the deadline of a read.
inline constexpr Nanos kLeaseTtl = std::chrono::seconds(30);
// Most reservations and leases of one client, expired ones included: bounds the memory that a bug
// or a stopped process can quarantine.
inline constexpr std::size_t kReservationsPerClient = 16384;
inline constexpr std::size_t kLeasesPerClient = 65536;
// Percent of the arena in use. Above kHighPercent the least recently used objects are evicted until
// kLowPercent is reached.
inline constexpr unsigned kHighPercent = 95;
inline constexpr unsigned kLowPercent = 90;
// Most expired objects (kExpiriesPerTurn) and evicted objects (kEvictionsPerTurn) that one request
// handles, so that no request waits for a mass expiry.
inline constexpr std::size_t kExpiriesPerTurn = 256;
inline constexpr std::size_t kEvictionsPerTurn = 64;

// Most objects in one call: they take less than a millisecond of the server's loop.
inline constexpr std::size_t kBatchObjects = 1024;
// Most extents in one reply: 16 MiB of reply, enough for 64 GiB in scattered slabs of 64 KiB.
inline constexpr std::size_t kBatchExtents = std::size_t{1} << 20;
// Most bytes that put_many reserves at a time, so that a batch never needs the whole arena.
inline constexpr std::uint64_t kBatchBytes = 64 << 20;
// Number of objects in the first look-up of a get_many, before their sizes are known.
inline constexpr std::size_t kFirstLookup = 64;

// Size and number of a client's staging buffers: enough bytes in flight to hide the round trip.
inline constexpr std::size_t kStagingBufferBytes = 2 << 20;
inline constexpr std::size_t kStagingBuffers = 8;
// Most calls of a client that wait for its thread; further calls end with kResourceExhausted.
inline constexpr std::size_t kWaitingCalls = 1024;
// Most one-sided operations in flight for one call.
inline constexpr std::size_t kOperationsInFlight = 4;

}  // namespace slime::cache::limits
