#pragma once

#include <cstddef>
#include <cstdint>

#include "base/limits.h"

namespace slime::agent::limits {

using slime::limits::kCloseBound;
using slime::limits::kErrorTextBytes;
using slime::limits::kNameBytes;
using slime::limits::kOperationDeadline;
using slime::limits::kTokenBytes;

// Smallest PeerAgentOptions::memory_bytes: one connection may hold a quarter of it, 1 MiB.
inline constexpr std::uint64_t kMemoryBytesMin = 4 << 20;

// One-sided operations with at least this timeout begin by Clock::coarse_now(), which is cheaper.
// Their deadline is later by the slack: two periods of the slowest tick of Linux.
inline constexpr Nanos kCoarseTimeout = std::chrono::seconds(10);
inline constexpr Nanos kCoarseSlack = std::chrono::milliseconds(20);

// ---- connecting
// Longest time from the end of the handshake until one message in each direction has arrived.
// Equals the bound of the handshake.
inline constexpr Nanos kReadyTimeout = std::chrono::seconds(5);
// Pause before another attempt to start the thread that registers memory for a connection.
inline constexpr Nanos kStartThreadPause = std::chrono::milliseconds(100);
// Pause after a failed attempt: 50 ms, doubled up to 2 s, each cut by up to half at random, so that
// the peers of a restarted process do not all connect at the same moment.
inline constexpr Nanos kBackoffMin = std::chrono::milliseconds(50);
inline constexpr Nanos kBackoffMax = std::chrono::seconds(2);
// How long a provider that failed with a peer is not offered to that peer: long compared to the
// cost of an attempt, and short compared to the life of a connection, so that a repaired network is
// used soon.
inline constexpr Nanos kAvoidFabric = std::chrono::seconds(60);
// Timeout of the probe of an old connection after its peer has opened another: long enough for a
// busy process, shorter than the peer's connect timeout. The probe of a peer whose lease has
// expired has a timeout of at least PeerAgentOptions::outage_tolerated.
inline constexpr Nanos kProbeTimeout = std::chrono::seconds(3);
// Most finished handshakes of one peer that wait for the result of a probe. A peer opens a
// connection for each name that it uses for this agent.
inline constexpr std::size_t kHeldConnections = 4;

// Most connections that wait for accept().
inline constexpr std::size_t kPendingPeers = 4096;

// ---- operations
// Most operations that wait for the connection to one peer: 64 for each of a thousand threads.
inline constexpr std::size_t kWaitingOperations = 64 * 1024;
// Most one-sided operations of one connection that wait for room in its endpoint.
inline constexpr std::size_t kStalledOperations = 64 * 1024;
// Most blocks of one batch. A list of so many blocks takes 400 MB.
inline constexpr std::size_t kBatchBlocks = 4 << 20;

// Most remote atomics of one agent that wait or are in flight. The memory for their old values is
// allocated in chunks of kOldValuesChunk bytes.
inline constexpr std::size_t kAtomics = 64 * 1024;
inline constexpr std::size_t kOldValuesChunk = 4096;

// ---- peers
// Most names and addresses without a connection that an agent remembers, and that info() shows.
inline constexpr std::size_t kRememberedPeers = 4096;

// Most operations that info() lists, oldest first. AgentInfo::operations_in_flight counts all.
inline constexpr std::size_t kShownOperations = 64;
// Longest wait of dump() for the loop of an agent, which may hang.
inline constexpr Nanos kDumpWait = std::chrono::seconds(1);

// ---- registry
// kRegistryTimeout bounds a request while the agent runs: connections and calls do not depend on
// the registry then. kRegisterTimeout bounds the registration at start, for which the caller waits.
inline constexpr Nanos kRegistryTimeout = std::chrono::milliseconds(1500);
inline constexpr Nanos kRegisterTimeout = std::chrono::seconds(5);
// Pauses between attempts while the registry is unreachable: short enough for the agent to be
// listed again within two heartbeats.
inline constexpr Nanos kRegistryRetryMin = std::chrono::milliseconds(100);
inline constexpr Nanos kRegistryRetryMax = std::chrono::seconds(2);
// Every kReportRepeat-th heartbeat carries the report even if it is unchanged: another nanoctrl,
// which answers now, may not have it.
inline constexpr int kReportRepeat = 12;
// Pause before the agent connects again to a peer that the registry wants connected, after a
// failure that waiting does not mend.
inline constexpr Nanos kKeepRetry = std::chrono::seconds(5);
// Pause between attempts to get the name back after another process took it: the shorter of
// kFencedRetry and kFencedBeats heartbeats.
inline constexpr Nanos kFencedRetry = std::chrono::seconds(10);
inline constexpr int kFencedBeats = 3;
// Retries of a handshake that failed because of a key. Before each retry the agent asks the
// registry for newer keys, then pauses, so that the peer can ask, too. The first pause is zero, the
// second kKeyPause, each later one twice the pause before. All pauses together are longer than
// kStrangerPause, the time for which the peer may have to wait before it asks.
inline constexpr int kKeyRetries = 6;
inline constexpr Nanos kKeyPause = std::chrono::milliseconds(50);
// Pause between two requests for newer keys that failed handshakes under unknown keys cause.
inline constexpr Nanos kStrangerPause = std::chrono::seconds(1);
// Pauses between requests for newer keys that a connected peer causes by proving an unknown key.
// The pause doubles from kMemberPauseMin to kMemberPauseMax while the requests bring no new key.
inline constexpr Nanos kMemberPauseMin = std::chrono::milliseconds(100);
inline constexpr Nanos kMemberPauseMax = std::chrono::seconds(1);
// Most proofs under unknown keys that one connection may bring within kProofWindow. A peer sends
// one proof for each change of its keys, and asks for keys at most once in kMemberPauseMin.
inline constexpr std::uint32_t kUnknownProofs = 256;
inline constexpr Nanos kProofWindow = std::chrono::seconds(10);
// A timer that fires this late shows that the loop was blocked: messages that arrived meanwhile are
// still unread.
inline constexpr Nanos kLateLoop = std::chrono::milliseconds(100);
// kAnnounceWait: longest wait of publish() and serve() until the registry has the change.
// kDeregisterWait: longest wait of close() until the agent is deregistered.
inline constexpr Nanos kAnnounceWait = std::chrono::seconds(1);
inline constexpr Nanos kDeregisterWait = std::chrono::seconds(1);
// ---- servers of a service
// kServersPause: least time between two requests for the list of a service's servers, so that a
// scope with many changes does not cause a request for each. kServersFresh: age at which a list
// that no heartbeat has confirmed is requested again; two heartbeats of the longest usual interval.
inline constexpr Nanos kServersPause = std::chrono::milliseconds(500);
inline constexpr Nanos kServersFresh = std::chrono::seconds(10);
// A list of servers that was not confirmed for this time is requested before a call uses it. This
// happens only after a pause in the calls: calls keep the list fresher.
inline constexpr Nanos kServersOld = std::chrono::seconds(30);
// How long an agent keeps known servers that a restarted registry does not list: agents need this
// time to register again.
inline constexpr Nanos kKeepUnlisted = std::chrono::seconds(30);
// How long calls prefer other servers to a server that failed (kAvoidServer, about the pause of a
// link after some failures), or that had too much to do (kAvoidBusyServer).
inline constexpr Nanos kAvoidServer = std::chrono::seconds(1);
inline constexpr Nanos kAvoidBusyServer = std::chrono::milliseconds(100);
// Longest ejection of a server. The first ejection lasts as long as the call that timed out, at
// least kAvoidServer; each trial call that times out doubles it.
inline constexpr Nanos kEjectServerMost = std::chrono::seconds(60);
// Pauses of a call that waits for a server, between two rounds over all servers.
inline constexpr Nanos kServerWaitMin = std::chrono::milliseconds(20);
inline constexpr Nanos kServerWaitMax = std::chrono::milliseconds(500);
// Most services without a proxy whose servers an agent remembers.
inline constexpr std::size_t kRememberedServices = 256;

// ---- closing
// Time that channels have after the bound of a close, for their last steps, before they are cut
// off.
inline constexpr Nanos kCloseGrace = std::chrono::milliseconds(500);
// Bound of the closes in destructors, which so take at most kCloseBound, also with a peer that is
// frozen.
inline constexpr Nanos kDestructorBound = kCloseBound - kCloseGrace;
// Most events of the registry that wait until a thread drives the loop.
inline constexpr std::size_t kPendingEvents = 4096;
// Most requests to the registry that wait for an answer.
inline constexpr std::size_t kPendingLookups = 4096;

}  // namespace slime::agent::limits
