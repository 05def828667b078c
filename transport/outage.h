#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace slime::transport {

// The option outage_tolerated (below: the outage) says how long a peer may be unreachable before
// its connections end. This file derives from it the settings that find an unreachable peer:
// - Keepalive of TCP connections, including those that verbs connections keep: while work waits,
//   the kernel ends a connection after the outage and two more intervals without a sign of life.
//   The two intervals are 2 s if the outage is at most a minute, else about a thirtieth of it.
// - Retries of a verbs adapter (RetryPolicy): the adapter gives an unreachable peer up after
//   1 + retry_count tries.
// - Probes: a verbs endpoint on which work waits tests the path of its adapter after one interval
//   of keepalive. An agent pings a peer whose lease has expired, and waits as long as keepalive.
// Shared memory needs no such setting: the kernel reports at once that a process of this host has
// ended.

// Keepalive settings of a TCP connection on which work waits. An outage may begin just before a
// probe, and all probes during the outage are lost. So there is one more probe than the outage has
// intervals: the last probe is sent after the outage.
struct Keepalive {
  int idle_seconds = 0;  // silence before the first probe (TCP_KEEPIDLE)
  // seconds between probes (TCP_KEEPINTVL), and longest pause between retransmissions
  int interval_seconds = 0;
  int probes = 0;  // unanswered probes that end the connection (TCP_KEEPCNT)

  // Returns the milliseconds without a sign of life after which the connection ends; also those
  // without an acknowledgement of sent data (TCP_USER_TIMEOUT).
  [[nodiscard]] int silent_ms() const { return 1000 * (idle_seconds + interval_seconds * probes); }
  [[nodiscard]] Nanos interval() const { return std::chrono::seconds(interval_seconds); }
};
// `outage` is in the range of check_outage().
Keepalive keepalive_for(Nanos outage);

// How often and after which time the adapter repeats packets that a peer does not acknowledge. One
// try takes at least 4.096 us x 2^timeout, and at most four times that by the InfiniBand
// specification. The last repetition is sent after retry_count tries. So retry_count tries last at
// least as long as the outage.
struct RetryPolicy {
  int timeout = 0;      // 1 to 31
  int retry_count = 0;  // 0 to 7

  [[nodiscard]] Nanos one_try() const { return Nanos(4096) * (std::int64_t{1} << timeout); }
};
// Chooses the shortest timeout with which at most 7 retries outlast the outage, because a short
// timeout repairs a lost packet sooner; then the fewest retries that outlast the outage. A
// parameter of 0 or more is used as it is. If only `timeout` is given, there are 7 retries. If only
// `retry_count` is given, the timeout is so long that these retries outlast the outage.
RetryPolicy retries_for(Nanos outage, int timeout = -1, int retry_count = -1);

// Returns kInvalidArgument with `label` and the allowed range if `outage` is not within
// limits::kOutageMin and limits::kOutageMax.
Status check_outage(std::string_view label, Nanos outage);
// Returns the time in the environment variable SLIME_OUTAGE_TOLERATED, in seconds ("5", "2.5"), or
// limits::kOutageTolerated if the variable is not set. kInvalidArgument for a value out of range.
Result<Nanos> outage_from_environment();

}  // namespace slime::transport
