#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/limits.h"

namespace slime::ctrl::limits {

using slime::limits::kNameBytes;

inline constexpr std::uint16_t kDefaultPort = 4479;

// Limits of one registration, from here to kRegionsPerPeer: enough for an agent with a region per
// layer and a service per model, and too few to let one agent fill the registry.
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
// Largest integer in JSON. Below 2^53, because many JSON readers store every number as a double.
inline constexpr std::uint64_t kIntegerMax = (std::uint64_t{1} << 53) - 1;

// Limits of the whole registry.
inline constexpr std::size_t kScopes = 256;
inline constexpr std::size_t kPeersPerScope = 16384;
inline constexpr std::size_t kRecordBytesTotal = std::size_t{512} << 20;
// Limit of one scope in bytes: a quarter of the registry's limit, so that three more scopes have
// room.
inline constexpr std::size_t kRecordBytesPerScope = kRecordBytesTotal / 4;
inline constexpr std::size_t kRecordBytesPerScopeMin = std::size_t{1} << 20;
inline constexpr std::size_t kPeersPerScopeMax = 1'000'000;
// Events that the change log of a scope keeps. A restart of ten thousand agents causes 20,000
// events, but a watcher that polls regularly is never 4,096 events behind.
inline constexpr std::size_t kEventsPerScope = 4096;
// Most events in one reply. A reader that is further behind sends its next request at once.
inline constexpr std::size_t kEventsPerReply = 256;
// Heartbeats in one request.
inline constexpr std::size_t kHeartbeats = 1000;
// Limits of one page of a list: links, peers (kPeersPerPage), and the bytes after which a page ends
// early (kPageBytes).
inline constexpr std::size_t kLinksPerPage = 4096;  // the last peer's links are never split
inline constexpr std::size_t kPeersPerPage = 1000;
inline constexpr std::size_t kPageBytes = std::size_t{1} << 20;
// Most records examined for one page, whether or not they match the request; takes about 10 ms of
// one thread. The page then ends, with a `next`.
inline constexpr std::size_t kVisitsPerPage = 4096;
inline constexpr std::size_t kVisitedBytesPerPage = std::size_t{32} << 20;
// Most records taken under one acquisition of the registry's lock. Takes about 0.3 ms, because
// records are shared, not copied.
inline constexpr std::size_t kRecordsPerSlice = 256;
// Most bytes of a list from the NanoCtrl-compatible routes, which have no pages.
inline constexpr std::size_t kCompatListBytes = std::size_t{16} << 20;

// The session secret that a registration returns.
inline constexpr std::size_t kSessionBytes = 32;
// Most tokens in the registry: as many as operators can keep track of.
inline constexpr std::size_t kTokens = 4096;
inline constexpr std::size_t kTokensPerScope = 256;  // tokens of all scopes ("*") are not limited
inline constexpr std::size_t kTokenIdDigits = 16;
inline constexpr std::size_t kTokenNoteBytes = 256;
// Longest validity of a token in seconds: 100 years. For a longer time, make a token without
// expiry.
inline constexpr std::uint64_t kTokenSecondsMax = std::uint64_t{100} * 366 * 24 * 3600;

// Most keys of a scope: the previous, the current and the next key. Members that are one rotation
// apart still have a common key. A key (kScopeKeyBytes) is as long as a digest of the MACs made
// with it.
inline constexpr std::size_t kScopeKeys = 3;
inline constexpr std::size_t kScopeKeyBytes = 32;
inline constexpr Nanos kKeyRotation = std::chrono::hours(1);
// Most key rotations in one call of KeyMaker::rotate(); further rotations follow with its next
// call.
inline constexpr std::size_t kRotationsPerTick = 16;

// Default time until a lease without heartbeats ends. Agents send three heartbeats in that time
// (kHeartbeatsPerTtl), so that two may be lost.
inline constexpr Nanos kTtlDefault = std::chrono::seconds(15);
inline constexpr Nanos kTtlMin = std::chrono::milliseconds(100);
inline constexpr Nanos kTtlMax = std::chrono::hours(24);
inline constexpr int kHeartbeatsPerTtl = 3;

// Threads that handle complete requests. An event loop holds the connections, so that an idle
// connection needs no thread. kProbes, the most probes at once, is smaller, because a probe blocks
// a thread.
inline constexpr std::size_t kThreads = 16;
inline constexpr std::size_t kProbes = 8;
// Fewest and most threads for lists and backups. Within these bounds there is one thread per
// processor, because a list or a backup uses one processor fully.
inline constexpr std::size_t kScanThreadsMin = 2;
inline constexpr std::size_t kScanThreadsMax = 8;
inline constexpr int kListenBacklog = 4096;
// Most connections: one for each of ten thousand agents, and some 6,000 more. An idle connection is
// closed after kIdleTime; agents send their next request earlier.
inline constexpr std::size_t kConnections = 16384;
inline constexpr std::size_t kReservedFds = 512;  // file descriptors for all but connections
inline constexpr Nanos kIdleTime = std::chrono::seconds(75);
inline constexpr Nanos kRequestTime = std::chrono::seconds(10);  // from its first byte to its last
// time in which a client must take each 64 KiB of a reply
inline constexpr Nanos kReplyTime = std::chrono::seconds(10);
inline constexpr Nanos kFlushTime = std::chrono::seconds(1);  // for the last replies at shutdown
// Most bytes buffered for all connections together. The first kBufferedFree bytes of each
// connection do not count, so that small requests are never refused.
inline constexpr std::size_t kBufferedBytes = std::size_t{64} << 20;
inline constexpr std::size_t kBufferedFree = 4096;
// Most requests per second from one client address. Ten thousand agents on one machine send 2,000
// heartbeats per second.
inline constexpr double kRequestsPerSecond = 10000;
inline constexpr std::size_t kClientAddresses = 16384;
// Most requests per second with one token, from all client addresses together.
inline constexpr double kTokenRequestsPerSecond = 10000;
// Most parked requests: watches that wait for a change, of all clients.
inline constexpr std::size_t kParked = 4096;
inline constexpr std::size_t kParkedPerClient = 1024;
inline constexpr Nanos kWatchWaitMax = std::chrono::seconds(30);
inline constexpr Nanos kProbeTimeout = std::chrono::milliseconds(200);
inline constexpr std::size_t kHeaderBytes = std::size_t{16} << 10;
inline constexpr std::size_t kHeaderLineBytes = 8000;
inline constexpr std::size_t kTargetBytes = 4096;  // path and query, as sent
inline constexpr std::size_t kPathBytes = 1024;    // path, as sent
// Most bytes of a request body. Enough for a full list of regions with the longest names, and the
// other fields.
inline constexpr std::size_t kBodyBytes = std::size_t{4} << 20;
inline constexpr std::size_t kJsonDepth = 8;

inline constexpr std::size_t kTokenBytes = 4096;

// Time for which the server keeps the copy of the registry for a backup, after the last request for
// a page.
inline constexpr Nanos kBackupIdle = std::chrono::seconds(30);

// Most bytes of a reply that the client accepts. The largest usual reply is one page of a list plus
// one record.
inline constexpr std::size_t kReplyBytes = std::size_t{64} << 20;

}  // namespace slime::ctrl::limits
