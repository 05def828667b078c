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
// With more operations under way whoever waits leaves the loop to its thread, if it has one: one, and another
// that ends while it waits, as what gives back the memory of an answer does.
inline constexpr std::size_t kHelpOperations = 2;
// With more, what begins another one leaves it to the thread as well.
inline constexpr std::size_t kBorrowOperations = 1;
// A one-sided operation of so many bytes counts as more: to spin for what takes long does not pay.
inline constexpr std::uint64_t kHelpBytes = 128 * 1024;

// Smallest PeerAgentOptions::memory_bytes: a connection's quarter is 1 MiB.
inline constexpr std::uint64_t kMemoryBytesMin = 4 << 20;

// ---- connecting
// From the end of the handshake until a message has gone both ways. As long as the handshake itself may take.
inline constexpr Nanos kReadyTimeout = std::chrono::seconds(5);
// After a failed attempt: 50 ms, doubled up to 2 s, each cut by up to half at random so that peers of a
// restarted process do not come back in step.
inline constexpr Nanos kBackoffMin = std::chrono::milliseconds(50);
inline constexpr Nanos kBackoffMax = std::chrono::seconds(2);
// How long a provider that failed with a peer is not offered to it: long beside what trying it costs, and
// short beside the life of a connection, for whoever mends the network.
inline constexpr Nanos kAvoidFabric = std::chrono::seconds(60);
// Asks a connection whether its other end still has it, when the peer has made another one: long enough for a
// busy process, short enough that who waits for the answer does not run into its own connect timeout. A peer
// whose lease has expired has longer, if an outage is tolerated for longer.
inline constexpr Nanos kProbeTimeout = std::chrono::seconds(3);
// Finished handshakes of one peer that wait for such an answer. A peer has one per name it uses for us.
inline constexpr std::size_t kHeldConnections = 4;

// ---- operations
// Operations of one peer that wait for its connection: two waves of a thousand threads with room to spare.
inline constexpr std::size_t kWaitingOperations = 64 * 1024;
// One-sided operations of one connection that its endpoint would not take yet.
inline constexpr std::size_t kStalledOperations = 64 * 1024;
// Blocks of one batch, as much as 400 MB of block list.
inline constexpr std::size_t kBatchBlocks = 4 << 20;

// Remote atomics of one agent that wait or are in flight, and the memory for old values that is made at a
// time.
inline constexpr std::size_t kAtomics = 64 * 1024;
inline constexpr std::size_t kOldValuesChunk = 4096;

// ---- peers
// Names and addresses that info() still shows when nothing connects them any more.
inline constexpr std::size_t kRememberedPeers = 4096;

// Operations that info() shows, the oldest first; how many there are it says in any case.
inline constexpr std::size_t kShownOperations = 64;
// How long a dump waits for the loop of an agent, which may be what hangs.
inline constexpr Nanos kDumpWait = std::chrono::seconds(1);

// ---- registry
// One request while connections and calls do not depend on it; and at start, where the caller waits.
inline constexpr Nanos kRegistryTimeout = std::chrono::milliseconds(1500);
inline constexpr Nanos kRegisterTimeout = std::chrono::seconds(5);
// Between attempts while the registry is away: short enough to be listed again within two heartbeats.
inline constexpr Nanos kRegistryRetryMin = std::chrono::milliseconds(100);
inline constexpr Nanos kRegistryRetryMax = std::chrono::seconds(2);
// A heartbeat of so many tells a report that says nothing new: another nanoctrl may not have it.
inline constexpr int kReportRepeat = 12;
// A link that should exist and that waiting alone does not mend.
inline constexpr Nanos kKeepRetry = std::chrono::seconds(5);
// Between attempts to have the name again after another process took it: the shorter of the two.
inline constexpr Nanos kFencedRetry = std::chrono::seconds(10);
inline constexpr int kFencedBeats = 3;
// A handshake that failed for a key is tried again, after the registry was asked for newer ones and a pause
// that the peer may need for the same: no time, then this, and each time twice as long. Together longer than
// kStrangerPause, in which the peer may not ask.
inline constexpr int kKeyRetries = 6;
inline constexpr Nanos kKeyPause = std::chrono::milliseconds(50);
// Between questions for newer keys because strangers came with others.
inline constexpr Nanos kStrangerPause = std::chrono::seconds(1);
// Between questions for newer keys because a peer that is connected proved one that is not known here: at
// first, and after several that have brought nothing new.
inline constexpr Nanos kMemberPauseMin = std::chrono::milliseconds(100);
inline constexpr Nanos kMemberPauseMax = std::chrono::seconds(1);
// Proofs under unknown keys that one connection may bring within the window. A peer sends one for each change
// of its keys that it hears of, and it asks for them no more often than kMemberPauseMin.
inline constexpr std::uint32_t kUnknownProofs = 256;
inline constexpr Nanos kProofWindow = std::chrono::seconds(10);
// A timer that fires so much later than it should was kept by what has kept the loop from reading, too.
inline constexpr Nanos kLateLoop = std::chrono::milliseconds(100);
// How long publish() and serve() wait for the registry to know, and close() for it to forget.
inline constexpr Nanos kAnnounceWait = std::chrono::seconds(1);
inline constexpr Nanos kDeregisterWait = std::chrono::seconds(1);
// ---- providers of a service
// Between questions for news of a list that calls use: a scope in which much changes is not asked for each
// change. And until a list that no heartbeat confirms is asked for again; two heartbeats of the longest usual
// interval.
inline constexpr Nanos kProvidersPause = std::chrono::milliseconds(500);
inline constexpr Nanos kProvidersFresh = std::chrono::seconds(10);
// Unconfirmed for longer, it is asked for before it is used. Only after a pause in the use: calls keep it
// fresher.
inline constexpr Nanos kProvidersOld = std::chrono::seconds(30);
// Who is not listed by a registry that has just restarted: as long as everybody has to register again.
inline constexpr Nanos kKeepUnlisted = std::chrono::seconds(30);
// How long others are preferred to a provider that failed: what its link pauses after some failures. And to
// one that has too much to do.
inline constexpr Nanos kAvoidProvider = std::chrono::seconds(1);
inline constexpr Nanos kAvoidBusyProvider = std::chrono::milliseconds(100);
// Longest ejection of a provider. The first ejection lasts as long as the call that timed out, at
// least kAvoidProvider; each trial call that times out doubles it.
inline constexpr Nanos kEjectProviderMost = std::chrono::seconds(60);
// Between rounds over all providers of a call that waits for one.
inline constexpr Nanos kProviderWaitMin = std::chrono::milliseconds(20);
inline constexpr Nanos kProviderWaitMax = std::chrono::milliseconds(500);
// Services whose providers an agent remembers while no proxy of them is left.
inline constexpr std::size_t kRememberedServices = 256;

// ---- closing
// What the last turns of a close may take beyond its bound, before connections are reset.
inline constexpr Nanos kCloseGrace = std::chrono::milliseconds(500);
// Changes in the registry that wait for a loop that nobody drives.
inline constexpr std::size_t kPendingEvents = 4096;
// Names that wait for an answer of the registry.
inline constexpr std::size_t kPendingLookups = 4096;

}  // namespace slime::agent::limits
