#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace slime::nixl::limits {

// Longest "host:port" in connection info, in bytes: a DNS name has at most 253 characters.
inline constexpr std::size_t kAddressBytes = 300;
// Longest name of a NIXL agent, in bytes. NIXL has no limit; engines use UUIDs and host names.
inline constexpr std::size_t kAgentNameBytes = 4096;
// A transfer that moves no byte for this long fails. A healthy peer answers within milliseconds; a
// peer that is silent for 30 s is stopped, or its network is down.
inline constexpr Nanos kStallTimeout = std::chrono::seconds(30);
// Longest time that deregisterMem waits for transfers that were released while in flight. Then
// their connections are reset, which ends all other transfers with these peers, too. A healthy peer
// finishes within milliseconds; only a stopped peer uses up this time.
inline constexpr Nanos kDeregisterBound = std::chrono::seconds(2);
// Longest time that one call of checkXfer drives the agent's loop. Callers poll checkXfer.
inline constexpr Nanos kCheckSpin = std::chrono::microseconds(5);
// Most bytes of unsent notifications to one peer, so that a peer that accepts none does not fill
// this process's memory.
inline constexpr std::size_t kNotificationBytes = std::size_t{64} << 20;

// Estimates of a transfer's time. kManyBytes: the size from which the time is measured per byte.
// kEstimateWeight: the weight of the newest measurement. kGuessedShortNs and kGuessedNsPerByte: the
// values of a fast network, used before the first measurement.
inline constexpr std::uint64_t kManyBytes = 64 << 10;
inline constexpr double kEstimateWeight = 0.2;
inline constexpr double kGuessedShortNs = 20'000;
inline constexpr double kGuessedNsPerByte = 0.1;
// Every 16th post of a transfer handle is measured, beginning with the first.
inline constexpr std::uint64_t kMeasured = 16;

}  // namespace slime::nixl::limits
