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

// ---- waiting
// A waiting thread drives the loop only while at most this many operations are in flight; with
// more, the loop's thread does. Two: a call, and an operation that ends during it, such as the
// release of an answer's memory.
inline constexpr std::size_t kHelpOperations = 2;
// A thread that begins an operation starts it on the spot only while at most this many are in
// flight.
inline constexpr std::size_t kBorrowOperations = 1;
// A one-sided operation of this many bytes counts for more than kHelpOperations: a long transfer is
// not worth spinning for.
inline constexpr std::uint64_t kHelpBytes = 128 * 1024;

// Smallest PeerAgentOptions::memory_bytes: a connection's quarter is 1 MiB.
inline constexpr std::uint64_t kMemoryBytesMin = 4 << 20;

// ---- connecting
// From the end of the handshake until a message has gone both ways. Equals the bound of the
// handshake.
inline constexpr Nanos kReadyTimeout = std::chrono::seconds(5);
// Pause after a failed attempt: 50 ms, doubled up to 2 s, each cut by up to half at random, so that
// the peers of a restarted process do not come back in step.
inline constexpr Nanos kBackoffMin = std::chrono::milliseconds(50);
inline constexpr Nanos kBackoffMax = std::chrono::seconds(2);
// How long a provider that failed with a peer is not offered to that peer: long compared to the
// cost of an attempt, and short compared to the life of a connection, so that a repaired network is
// used soon.
inline constexpr Nanos kAvoidFabric = std::chrono::seconds(60);
// Timeout of the probe of an old connection after its peer has opened another: long enough for a
// busy process, shorter than the peer's connect timeout. For a peer whose lease has expired it is
// at least PeerAgentOptions::outage_tolerated.
inline constexpr Nanos kProbeTimeout = std::chrono::seconds(3);
// Finished handshakes of one peer that wait for the result of a probe. A peer opens one for each
// name that it uses for us.
inline constexpr std::size_t kHeldConnections = 4;

// ---- operations
// Operations of one peer that wait for its connection: two rounds of a thousand threads, with room
// to spare.
inline constexpr std::size_t kWaitingOperations = 64 * 1024;
// One-sided operations of one connection that wait for room in its endpoint.
inline constexpr std::size_t kStalledOperations = 64 * 1024;
// Blocks of one batch: 400 MB of block list.
inline constexpr std::size_t kBatchBlocks = 4 << 20;

// Remote atomics of one agent that wait or are in flight; and the memory for old values is
// allocated in chunks of kOldValuesChunk.
inline constexpr std::size_t kAtomics = 64 * 1024;
inline constexpr std::size_t kOldValuesChunk = 4096;

// ---- peers
// Names and addresses without a connection that info() still shows.
inline constexpr std::size_t kRememberedPeers = 4096;

// Operations that info() lists, oldest first; it always shows their number.
inline constexpr std::size_t kShownOperations = 64;
// How long a dump waits for the loop of an agent: the loop may be hanging.
inline constexpr Nanos kDumpWait = std::chrono::seconds(1);

// ---- registry
// Timeout of one request: while the agent runs, when connections and calls do not depend on the
// registry; and at start, when the caller waits.
inline constexpr Nanos kRegistryTimeout = std::chrono::milliseconds(1500);
inline constexpr Nanos kRegisterTimeout = std::chrono::seconds(5);
// Pauses between attempts while the registry is unreachable: short enough for the agent to be
// listed again within two heartbeats.
inline constexpr Nanos kRegistryRetryMin = std::chrono::milliseconds(100);
inline constexpr Nanos kRegistryRetryMax = std::chrono::seconds(2);
// Every kReportRepeat-th heartbeat carries the report even if it is unchanged: another nanoctrl may
// not have it.
inline constexpr int kReportRepeat = 12;
// Pause before a wanted link is tried again after a failure that waiting does not mend.
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
// Pause between requests for newer keys that are caused by handshakes of strangers under unknown
// keys.
inline constexpr Nanos kStrangerPause = std::chrono::seconds(1);
// Pause between requests for newer keys that are caused by a connected peer which proved an unknown
// key: the first, and the longest, after requests that brought nothing new.
inline constexpr Nanos kMemberPauseMin = std::chrono::milliseconds(100);
inline constexpr Nanos kMemberPauseMax = std::chrono::seconds(1);
// Proofs under unknown keys that one connection may bring within kProofWindow. A peer sends one
// proof for each change of its keys, and asks for keys at most once in kMemberPauseMin.
inline constexpr std::uint32_t kUnknownProofs = 256;
inline constexpr Nanos kProofWindow = std::chrono::seconds(10);
// A timer that fires this late shows that the loop was blocked, and has not read what arrived
// meanwhile.
inline constexpr Nanos kLateLoop = std::chrono::milliseconds(100);
// How long publish() and serve() wait until the registry has the change, and close() until it has
// deregistered.
inline constexpr Nanos kAnnounceWait = std::chrono::seconds(1);
inline constexpr Nanos kDeregisterWait = std::chrono::seconds(1);
// ---- servers of a service
// Least time between two requests for a list of servers that calls use, so that a scope with many
// changes does not cause a request for each; and time after which a list that no heartbeat has
// confirmed is requested again: two heartbeats of the longest usual interval.
inline constexpr Nanos kServersPause = std::chrono::milliseconds(500);
inline constexpr Nanos kServersFresh = std::chrono::seconds(10);
// A list that was not confirmed for this time is requested before it is used. That happens only
// after a pause in the calls: calls keep the list fresher.
inline constexpr Nanos kServersOld = std::chrono::seconds(30);
// Keeps servers that a registry does not list after its restart: agents need this time to register
// again.
inline constexpr Nanos kKeepUnlisted = std::chrono::seconds(30);
// How long other servers are preferred to a server that failed, or that had too much to do. Equals
// the pause of a link after some failures.
inline constexpr Nanos kAvoidServer = std::chrono::seconds(1);
inline constexpr Nanos kAvoidBusyServer = std::chrono::milliseconds(100);
// Longest ejection of a server. The first ejection lasts as long as the call that timed out, at
// least kAvoidServer; each trial call that times out doubles it.
inline constexpr Nanos kEjectServerMost = std::chrono::seconds(60);
// Pauses between the rounds over all servers of a call that waits for a server.
inline constexpr Nanos kServerWaitMin = std::chrono::milliseconds(20);
inline constexpr Nanos kServerWaitMax = std::chrono::milliseconds(500);
// Services whose servers an agent remembers while no proxy of them is left.
inline constexpr std::size_t kRememberedServices = 256;

// ---- closing
// Time beyond a close's bound for its last turns, before connections are reset.
inline constexpr Nanos kCloseGrace = std::chrono::milliseconds(500);
// Changes in the registry that wait for the loop to be driven.
inline constexpr std::size_t kPendingEvents = 4096;
// Names that wait for an answer of the registry.
inline constexpr std::size_t kPendingLookups = 4096;

}  // namespace slime::agent::limits
