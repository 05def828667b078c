#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace slime::nixl::limits {

// "host:port" in connection info: a name of DNS has at most 253 characters.
inline constexpr std::size_t kAddressBytes = 300;
// NIXL's name of an agent. NIXL has no limit; engines use UUIDs and host names.
inline constexpr std::size_t kAgentNameBytes = 4096;
// A transfer that moves no byte for so long has failed. NIXL's users wait for minutes, but a
// healthy peer answers within milliseconds; 30 s is a peer that is stopped, or a network that is
// gone.
inline constexpr Nanos kStallTimeout = std::chrono::seconds(30);
// Longest that deregisterMem waits for transfers that were released while they were under way. Then
// their connections are reset, which ends all other transfers with those peers, too. So it is no
// shorter: what a healthy peer has begun to fetch is over within milliseconds, and only one that is
// stopped takes all of it.
inline constexpr Nanos kDeregisterBound = std::chrono::seconds(2);
// Longest time that checkXfer, which callers poll, drives the agent's loop.
inline constexpr Nanos kCheckSpin = std::chrono::microseconds(5);
// Bytes of notifications to one peer that have not left. A peer that takes none must not fill our
// memory.
inline constexpr std::size_t kNotificationBytes = std::size_t{64} << 20;

// Estimates of what a transfer takes: from how many bytes on their number counts, how much the
// newest measurement does, and what is said before there is one (as of a fast network).
inline constexpr std::uint64_t kManyBytes = 64 << 10;
inline constexpr double kEstimateWeight = 0.2;
inline constexpr double kGuessedShortNs = 20'000;
inline constexpr double kGuessedNsPerByte = 0.1;
// One post in so many of a handle is measured, and the first.
inline constexpr std::uint64_t kMeasured = 16;

}  // namespace slime::nixl::limits
