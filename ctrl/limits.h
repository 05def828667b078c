#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/limits.h"

namespace slime::ctrl::limits {

using slime::limits::kNameBytes;

inline constexpr std::uint16_t kDefaultPort = 4479;

// What one registration may carry. Enough for an agent with a region per layer and a service per model, and
// small enough that no agent fills the registry alone.
inline constexpr std::size_t kKindBytes = 64;
inline constexpr std::size_t kAddressBytes = 263;  // a name in brackets, ":", a port
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
inline constexpr std::size_t kReportBytesTotal = std::size_t{64} << 20;  // of all agents; then none is taken
inline constexpr std::size_t kReportBytesPerScope = kReportBytesTotal / 4;
inline constexpr std::size_t kRegionsPerPeer = 4096;
// Integers in JSON must survive readers that hold every number in a double.
inline constexpr std::uint64_t kIntegerMax = (std::uint64_t{1} << 53) - 1;

// What the whole registry may hold.
inline constexpr std::size_t kScopes = 256;
inline constexpr std::size_t kPeersPerScope = 16384;
inline constexpr std::size_t kRecordBytesTotal = std::size_t{512} << 20;
// What one scope may have of it, so that three others still find room.
inline constexpr std::size_t kRecordBytesPerScope = kRecordBytesTotal / 4;
inline constexpr std::size_t kRecordBytesPerScopeMin = std::size_t{1} << 20;
inline constexpr std::size_t kPeersPerScopeMax = 1'000'000;
// Ten thousand agents that all restart make 20,000 events; a watcher that polls at all stays within this.
inline constexpr std::size_t kEventsPerScope = 4096;
// Events in one reply. A reader that is behind asks again at once.
inline constexpr std::size_t kEventsPerReply = 256;
// Heartbeats in one request.
inline constexpr std::size_t kHeartbeats = 1000;
// Peers in one page of a list, and the bytes after which a page ends early.
inline constexpr std::size_t kLinksPerPage = 4096;  // and the rest of the last peer's
inline constexpr std::size_t kPeersPerPage = 1000;
inline constexpr std::size_t kPageBytes = std::size_t{1} << 20;
// What a page may look at for what it answers with, matching or not: then it ends, with `next`. About 10 ms
// of one thread at most.
inline constexpr std::size_t kVisitsPerPage = 4096;
inline constexpr std::size_t kVisitedBytesPerPage = std::size_t{32} << 20;
// Records that are taken under the registry's lock at a time: about 0.3 ms, for they are shared, not copied.
inline constexpr std::size_t kRecordsPerSlice = 256;
// A list of the routes that have no pages.
inline constexpr std::size_t kCompatListBytes = std::size_t{16} << 20;

// Of the secret that a registration returns.
inline constexpr std::size_t kSessionBytes = 32;
// Tokens. As many as an operator can look after.
inline constexpr std::size_t kTokens = 4096;
inline constexpr std::size_t kTokensPerScope = 256;  // of one scope; those of all scopes have no such limit
inline constexpr std::size_t kTokenIdDigits = 16;
inline constexpr std::size_t kTokenNoteBytes = 256;
inline constexpr std::uint64_t kTokenSecondsMax =
    std::uint64_t{100} * 366 * 24 * 3600;  // who wants more says never

// Keys of a scope: the previous, the current and the next one, so that whoever is one change behind or ahead
// is understood. As long as the digest of their MACs.
inline constexpr std::size_t kScopeKeys = 3;
inline constexpr std::size_t kScopeKeyBytes = 32;
inline constexpr Nanos kKeyRotation = std::chrono::hours(1);
// In one turn of the clock's thread; the others follow in the next one.
inline constexpr std::size_t kRotationsPerTick = 16;

// Leases. Three heartbeats fit into one, so that two lost ones do no harm.
inline constexpr Nanos kTtlDefault = std::chrono::seconds(15);
inline constexpr Nanos kTtlMin = std::chrono::milliseconds(100);
inline constexpr Nanos kTtlMax = std::chrono::hours(24);
inline constexpr int kHeartbeatsPerTtl = 3;

// HTTP. An event loop holds the connections, so they cost memory only; threads are for requests that came
// whole. Probes hold fewer than all of them.
inline constexpr std::size_t kThreads = 16;
inline constexpr std::size_t kProbes = 8;
// For lists: they are of one processor each, and one more would only share it.
inline constexpr std::size_t kScanThreadsMin = 2;
inline constexpr std::size_t kScanThreadsMax = 8;
inline constexpr int kListenBacklog = 4096;
// Ten thousand agents with one each, and as many of others. A connection with nothing under way is closed
// after its time; agents come back within it.
inline constexpr std::size_t kConnections = 16384;
inline constexpr std::size_t kReservedFds = 512;  // for everything but connections
inline constexpr Nanos kIdleTime = std::chrono::seconds(75);
inline constexpr Nanos kRequestTime = std::chrono::seconds(10);  // from its first byte to its last
inline constexpr Nanos kReplyTime = std::chrono::seconds(10);    // for the next part of a reply to be taken
inline constexpr Nanos kFlushTime = std::chrono::seconds(1);     // for the last replies at the end
// What all connections may hold beyond the first bytes of each, which small requests never exceed.
inline constexpr std::size_t kBufferedBytes = std::size_t{64} << 20;
inline constexpr std::size_t kBufferedFree = 4096;
// Of one client's address. Ten thousand agents on one machine beat 2,000 times a second.
inline constexpr double kRequestsPerSecond = 10000;
inline constexpr std::size_t kClientAddresses = 16384;
// And of one token, from wherever.
inline constexpr double kTokenRequestsPerSecond = 10000;
// Requests that wait for a change.
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

// How long the server keeps the snapshot that a backup's pages are of after somebody asked for one of them.
inline constexpr Nanos kBackupIdle = std::chrono::seconds(30);

// Client. Of the usual replies the largest is one page and one more record.
inline constexpr std::size_t kReplyBytes = std::size_t{64} << 20;

}  // namespace slime::ctrl::limits
