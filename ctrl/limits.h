#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/limits.h"

namespace slime::ctrl::limits {

using slime::limits::kNameBytes;

inline constexpr std::uint16_t kDefaultPort = 4479;

// Limits of one registration: enough for an agent with a region per layer and a service per model,
// small enough that one agent cannot fill the registry.
inline constexpr std::size_t kKindBytes = 64;
inline constexpr std::size_t kAddressBytes = 263;  // "[name]:port"
inline constexpr std::size_t kProvidersPerPeer = 16;
inline constexpr std::size_t kMetadataEntries = 32;
inline constexpr std::size_t kMetadataKeyBytes = 64;
inline constexpr std::size_t kMetadataValueBytes = 1024;
inline constexpr std::size_t kServicesPerPeer = 256;
inline constexpr std::size_t kServiceLabels = 16;
inline constexpr std::size_t kMethodsPerService = 256;
inline constexpr std::size_t kLinksPerPeer = 1024;
inline constexpr std::size_t kReportLinks = 1024;
inline constexpr std::size_t kReportCounters = 32;
inline constexpr std::size_t kReportBytesTotal = std::size_t{64} << 20;  // all agents; more is
                                                                         // dropped
inline constexpr std::size_t kReportBytesPerScope = kReportBytesTotal / 4;
inline constexpr std::size_t kRegionsPerPeer = 4096;
// JSON integers stay below 2^53: many JSON readers store every number in a double.
inline constexpr std::uint64_t kIntegerMax = (std::uint64_t{1} << 53) - 1;

// Limits of the whole registry.
inline constexpr std::size_t kScopes = 256;
inline constexpr std::size_t kPeersPerScope = 16384;
inline constexpr std::size_t kRecordBytesTotal = std::size_t{512} << 20;
// Limits of one scope: a quarter of the total, so that three other scopes still find room.
inline constexpr std::size_t kRecordBytesPerScope = kRecordBytesTotal / 4;
inline constexpr std::size_t kRecordBytesPerScopeMin = std::size_t{1} << 20;
inline constexpr std::size_t kPeersPerScopeMax = 1'000'000;
// Ten thousand agents that all restart cause 20,000 events; a watcher that polls regularly never
// falls 4,096 events behind.
inline constexpr std::size_t kEventsPerScope = 4096;
// Events in one reply. A reader that is behind asks again at once.
inline constexpr std::size_t kEventsPerReply = 256;
// Heartbeats in one request.
inline constexpr std::size_t kHeartbeats = 1000;
// Peers in one page of a list, and the size in bytes after which a page ends early.
inline constexpr std::size_t kLinksPerPage = 4096;  // the last peer's links are never split
inline constexpr std::size_t kPeersPerPage = 1000;
inline constexpr std::size_t kPageBytes = std::size_t{1} << 20;
// Records that one page may examine, matching or not. Then the page ends, with `next`. At most
// about 10 ms of one thread.
inline constexpr std::size_t kVisitsPerPage = 4096;
inline constexpr std::size_t kVisitedBytesPerPage = std::size_t{32} << 20;
// Records read per acquisition of the registry's lock: about 0.3 ms, because records are shared,
// not copied.
inline constexpr std::size_t kRecordsPerSlice = 256;
// Largest list of the NanoCtrl-compatible routes, which have no pages.
inline constexpr std::size_t kCompatListBytes = std::size_t{16} << 20;

// The session secret that a registration returns.
inline constexpr std::size_t kSessionBytes = 32;
// Tokens: as many as an operator can manage.
inline constexpr std::size_t kTokens = 4096;
inline constexpr std::size_t kTokensPerScope = 256;  // tokens of all scopes ("*") are not limited
inline constexpr std::size_t kTokenIdDigits = 16;
inline constexpr std::size_t kTokenNoteBytes = 256;
// 100 years; a token for longer has no expiry.
inline constexpr std::uint64_t kTokenSecondsMax = std::uint64_t{100} * 366 * 24 * 3600;

// Keys of a scope: the previous, the current and the next key, so that members one rotation apart
// still understand each other. A key is as long as the digest of the MACs made with it.
inline constexpr std::size_t kScopeKeys = 3;
inline constexpr std::size_t kScopeKeyBytes = 32;
inline constexpr Nanos kKeyRotation = std::chrono::hours(1);
// Key rotations in one turn of the ticker thread; the remaining rotations follow in the next turn.
inline constexpr std::size_t kRotationsPerTick = 16;

// Leases. Three heartbeats fit into one lease, so that two lost heartbeats do no harm.
inline constexpr Nanos kTtlDefault = std::chrono::seconds(15);
inline constexpr Nanos kTtlMin = std::chrono::milliseconds(100);
inline constexpr Nanos kTtlMax = std::chrono::hours(24);
inline constexpr int kHeartbeatsPerTtl = 3;

// HTTP. An event loop holds the connections, so an idle connection costs memory only; threads serve
// complete requests. Probes may occupy fewer threads than there are.
inline constexpr std::size_t kThreads = 16;
inline constexpr std::size_t kProbes = 8;
// Threads for lists and backups. Such a request uses one processor fully, so threads beyond the
// number of processors gain nothing.
inline constexpr std::size_t kScanThreadsMin = 2;
inline constexpr std::size_t kScanThreadsMax = 8;
inline constexpr int kListenBacklog = 4096;
// Ten thousand agents with one connection each, and some 6,000 other connections. An idle
// connection is closed after kIdleTime; agents send their next request earlier.
inline constexpr std::size_t kConnections = 16384;
inline constexpr std::size_t kReservedFds = 512;  // file descriptors for all but connections
inline constexpr Nanos kIdleTime = std::chrono::seconds(75);
inline constexpr Nanos kRequestTime = std::chrono::seconds(10);  // from its first byte to its last
inline constexpr Nanos kReplyTime = std::chrono::seconds(10);    // for the client to take the next part
inline constexpr Nanos kFlushTime = std::chrono::seconds(1);     // for the last replies at shutdown
// Bytes that all connections together may buffer. The first kBufferedFree bytes of each connection,
// which small requests never exceed, do not count.
inline constexpr std::size_t kBufferedBytes = std::size_t{64} << 20;
inline constexpr std::size_t kBufferedFree = 4096;
// Requests a second from one client address. Ten thousand agents on one machine send 2,000
// heartbeats a second.
inline constexpr double kRequestsPerSecond = 10000;
inline constexpr std::size_t kClientAddresses = 16384;
// Requests a second with one token, from all addresses together.
inline constexpr double kTokenRequestsPerSecond = 10000;
// Parked requests: requests that wait for a change.
inline constexpr std::size_t kParked = 4096;
inline constexpr std::size_t kParkedPerClient = 1024;
inline constexpr Nanos kWatchWaitMax = std::chrono::seconds(30);
inline constexpr Nanos kProbeTimeout = std::chrono::milliseconds(200);
inline constexpr std::size_t kHeaderBytes = std::size_t{16} << 10;
inline constexpr std::size_t kHeaderLineBytes = 8000;
inline constexpr std::size_t kTargetBytes = 4096;  // path and query, as sent
inline constexpr std::size_t kPathBytes = 1024;    // path, as sent
// A full list of regions with the longest names, and room for the rest.
inline constexpr std::size_t kBodyBytes = std::size_t{4} << 20;
inline constexpr std::size_t kJsonDepth = 8;

inline constexpr std::size_t kTokenBytes = 4096;

// How long the server keeps a backup's snapshot after the last request for one of its pages.
inline constexpr Nanos kBackupIdle = std::chrono::seconds(30);

// Client. The largest usual reply is one page plus one record.
inline constexpr std::size_t kReplyBytes = std::size_t{64} << 20;

}  // namespace slime::ctrl::limits
