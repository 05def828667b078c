#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace slime::nixl::limits {

// "host:port" in connection info: a DNS name has at most 253 characters.
inline constexpr std::size_t kAddressBytes = 300;
// NIXL's name of an agent. NIXL has no limit; engines use UUIDs and host names.
inline constexpr std::size_t kAgentNameBytes = 4096;
// A transfer that moves no byte for this long has failed. Users of NIXL wait for minutes, but a
// healthy peer answers within milliseconds; after 30 s the peer is stopped, or the network is gone.
inline constexpr Nanos kStallTimeout = std::chrono::seconds(30);
// Longest time that deregisterMem waits for transfers that were released while in flight. Then
// their connections are reset, which ends all other transfers with these peers, too. So it is not
// shorter: a healthy peer finishes its reads within milliseconds, and only a stopped peer takes all
// of it.
inline constexpr Nanos kDeregisterBound = std::chrono::seconds(2);
// Longest time that checkXfer, which callers poll, drives the agent's loop.
inline constexpr Nanos kCheckSpin = std::chrono::microseconds(5);
// Bytes of unsent notifications to one peer. A peer that accepts none must not fill our memory.
inline constexpr std::size_t kNotificationBytes = std::size_t{64} << 20;

// Estimates of a transfer's time: the size from which the bytes count, the weight of the newest
// measurement, and the values before the first measurement (of a fast network).
inline constexpr std::uint64_t kManyBytes = 64 << 10;
inline constexpr double kEstimateWeight = 0.2;
inline constexpr double kGuessedShortNs = 20'000;
inline constexpr double kGuessedNsPerByte = 0.1;
// One in this many posts of a handle is measured, and the first.
inline constexpr std::uint64_t kMeasured = 16;

}  // namespace slime::nixl::limits
