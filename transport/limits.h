#pragma once

#include <cstddef>
#include <cstdint>

#include "base/limits.h"

namespace slime::transport::limits {

using slime::limits::kCloseBound;
using slime::limits::kErrorTextBytes;
using slime::limits::kNameBytes;
using slime::limits::kOperationDeadline;
using slime::limits::kTokenBytes;

// ---- Loop
// How long a loop spins. Longer than a loopback round trip (about 10 us), far shorter than a
// scheduler slice, because machines with two cores are common.
inline constexpr Nanos kLoopSpin = std::chrono::microseconds(20);
// How long a loop without a thread spins while answers come at that pace: its callers do nothing
// but wait. Longer than a round trip between two processes that sleep and are woken, also on a slow
// machine; otherwise the callers would always sleep.
inline constexpr Nanos kCallerSpin = std::chrono::milliseconds(1);
// How often a loop polls before it looks at the descriptors.
inline constexpr int kLoopPolls = 64;
// A loop whose pollers have work looks at the descriptors after so many turns, or so much time.
inline constexpr int kLoopTurnsWithoutFds = 64;
inline constexpr Nanos kLoopFdsEvery = std::chrono::microseconds(200);
// The same time for a loop whose descriptors had events within the second value: an agent may have
// peers over shm and over tcp.
inline constexpr Nanos kLoopFdsOften = std::chrono::microseconds(2);
inline constexpr Nanos kLoopFdsRecent = std::chrono::milliseconds(2);
// A caller that waits runs a whole turn once in this many turns; in the other turns it looks at the
// pollers alone.
inline constexpr unsigned kLoopLooks = 8;
// A thread that has spun this long without work yields its processor before each further turn.
// Longer than a running peer takes to answer. Otherwise the awaited process may have no processor,
// and would run only when the slice of this thread is used up.
inline constexpr Nanos kLoopYieldAfter = std::chrono::microseconds(3);
// How long a caller that waits drives before it checks whether it may stop, and lets other callers
// check.
inline constexpr Nanos kLoopWaitTurn = std::chrono::milliseconds(10);
inline constexpr std::size_t kLoopEventsPerTurn = 64;
// How often the sleeping thread of a loop looks at its timers and at lazily deferred work.
inline constexpr Nanos kLoopLongestSleep = std::chrono::seconds(1);
// How long a caller that drives instead of the thread spins at most, where that saves it from
// sleeping.
inline constexpr Nanos kLoopHelpSpin = std::chrono::microseconds(150);
// A wait with less time left yields instead of sleeping. The kernel ends each sleep up to so much
// too late, even one whose time has passed.
inline constexpr Nanos kLoopShortestSleep = std::chrono::microseconds(50);
// How often a caller that asks the thread for the drive yields to it. The thread gives up the
// drive when it has nothing to do.
inline constexpr int kLoopHandOverYields = 16;
// For how long no caller drives instead of the thread after several have waited at the same time:
// passing the drive around costs more.
inline constexpr Nanos kLoopCrowded = std::chrono::milliseconds(10);
// Rounds of deferred work that a caller runs before it leaves the rest to the thread.
inline constexpr int kLoopLastTurns = 4;
// How long the thread pauses after it found a caller driving. The second value is for loops whose
// callers poll: such a caller is back before the pause ends.
inline constexpr Nanos kLoopNap = std::chrono::microseconds(50);
inline constexpr Nanos kLoopPolledNap = std::chrono::milliseconds(1);

// ---- messages and credits
// The size of a receive slot, and of the largest message. Larger payloads go by rendezvous.
inline constexpr std::uint32_t kSlotBytes = 8 * 1024;
// Receive slots that all endpoints of one port share: at most 4,096 x 8 KiB = 32 MiB, allocated at
// first use.
inline constexpr std::uint32_t kPoolSlots = 4096;
// Credits that every endpoint keeps, even when idle. 4,096 / 8 = 512 peers can connect before a
// port refuses.
inline constexpr std::uint32_t kBaseCredits = 8;
// Credits that notifications leave to messages, if the peer's initial credits are at least twice as
// many. Calls go on while the peer does not take notifications.
inline constexpr std::uint32_t kMessageCredits = 4;
// Credits that one busy endpoint may hold.
inline constexpr std::uint32_t kMaxCredits = 256;
// A sender that sent nothing for this long gives back the credits beyond the base.
inline constexpr Nanos kCreditIdle = std::chrono::milliseconds(500);
// The longest message that is sent at once instead of with others of its turn, and the most parts
// that it may have.
inline constexpr std::uint32_t kPromptBytes = 256;
inline constexpr std::size_t kPromptParts = 7;

// ---- one-sided operations
// The largest frame of bulk data. Messages go between frames, so it bounds how long a message
// waits behind bulk data.
inline constexpr std::uint32_t kChunkBytes = 256 * 1024;
// The most operations of one endpoint that are posted and not completed; the next is refused.
inline constexpr std::size_t kMaxOperations = 4096;
// Acks of writes wait for others until so many bytes were written since the last acks, or, if no
// other write comes, for so long.
inline constexpr std::uint64_t kAckBytes = 512 * 1024;
inline constexpr Nanos kAckPatience = std::chrono::milliseconds(1);
// The most reads that one side may have requested and not received. The initiator queues the rest.
inline constexpr std::uint32_t kReadWindow = 64;
// The most regions of one device.
inline constexpr std::size_t kMaxRegions = 1 << 20;

// ---- soft engine
// The size of the receive buffer: one read of the wire brings many small frames. Bulk data beyond
// it is read straight into its destination.
inline constexpr std::size_t kReceiveBufferBytes = 64 * 1024;
// After payloads of at least the first size, one read takes at most the second size into the
// buffer: enough for headers. Payload bytes that get into the buffer are copied twice.
inline constexpr std::size_t kReceiveBulkBytes = 32 * 1024;
inline constexpr std::size_t kReceiveAroundBulk = 4 * 1024;
// The most frames of one burst, which is one write to the wire.
inline constexpr std::size_t kBurstFrames = 64;
// The most small frames of a burst, so that they cannot starve bulk data.
inline constexpr std::size_t kBurstSmallFrames = 48;
// How much one endpoint moves in each direction before the others of its loop get their turn.
inline constexpr std::size_t kTurnBytes = 1024 * 1024;
// Buffers of sent messages that an endpoint keeps for the next ones.
inline constexpr std::size_t kSpareMessageBuffers = 32;
// The bounds of PortOptions::slot_bytes.
inline constexpr std::uint32_t kMinSlotBytes = 256;
inline constexpr std::uint32_t kMaxSlotBytes = 1024 * 1024;
// The bound of PortOptions::pool_slots.
inline constexpr std::uint32_t kMaxPoolSlots = 1 << 20;

// ---- copies past the wire
// Most bytes that one endpoint copies in one turn of its loop, as many as it moves over the wire.
// An owner that takes its memory back waits for such a turn, 20 to 60 us.
inline constexpr std::uint64_t kCopyStepBytes = 1024 * 1024;
// The least bytes that a block counts for, so that many small blocks make a step as well.
inline constexpr std::uint64_t kCopyStepLeast = 256;
// What a failed operation counts for: a caller that posts it again at once must not keep the turn
// for ever.
inline constexpr std::uint64_t kCopyStepFailed = 16 * 1024;
// Batches of at most so many bytes and blocks are copied within the call that posts them, if no
// operation is in front of them.
inline constexpr std::uint64_t kPromptCopyBytes = 64 * 1024;
// The same for copies that the kernel makes, which are better made together.
inline constexpr std::uint64_t kPromptFetchBytes = 16 * 1024;
inline constexpr std::size_t kPromptCopyBlocks = 16;
// The most blocks that one call has the kernel read from the memory of a peer, of one chunk of
// bulk data together.
inline constexpr std::size_t kFetchBlocks = 256;
// The most bytes that a peer may be asked to read and has not reported as read: messages wait
// behind them.
inline constexpr std::uint64_t kFetchAhead = 1024 * 1024;
// After this many read bytes the reader tells the asking side, so that the asking side asks for
// more before the rest is read.
inline constexpr std::uint64_t kFetchTold = kFetchAhead / 2;
// Writes of fewer bytes, or of shorter blocks, carry their bytes: for each piece of memory the
// kernel looks up a page, which takes longer than copying 1 KiB twice (measured: 4 KiB takes as
// long either way).
inline constexpr std::uint64_t kFetchLeastBytes = 32 * 1024;
inline constexpr std::uint64_t kFetchLeastBlock = 4 * 1024;
// How long an owner on the loop waits for a copy of a peer to end before it moves its memory: many
// steps, but too short for others on the loop to notice.
inline constexpr Nanos kLoanTurn = std::chrono::milliseconds(2);
// Interval at which that owner checks whether the copy has ended.
inline constexpr Nanos kLoanLook = std::chrono::microseconds(50);
// The longest interval of these checks, for a connection that ends while its peer does not run.
inline constexpr Nanos kLoanLookMost = std::chrono::milliseconds(20);
// The shortest block that is copied past the caches. In a shorter block, the first lines, which the
// copy has to wait for, are too large a part.
inline constexpr std::size_t kColdCopyBytes = 16 * 1024;
// Bytes of a shorter block that are prefetched before it is copied next.
inline constexpr std::size_t kAskedBytes = 4 * 64;
// The size of the last level cache, if the kernel does not say.
inline constexpr std::size_t kUsualCacheBytes = 32 * 1024 * 1024;

// ---- handshake
// The largest handshake frame. The largest real ones are names (2 x 257), ids and a MAC with
// either eight offers, or a reason and provider parameters.
inline constexpr std::uint32_t kHandshakeFrameBytes = 4096;
// The longest name of a provider, and the most bytes that it tells the peer through the handshake.
inline constexpr std::size_t kProviderNameBytes = 32;
inline constexpr std::size_t kProviderParameterBytes = 1024;
// The most providers that an initiator offers.
inline constexpr std::size_t kOffers = 8;
// Most bytes of the hint of one offer (Device::hint()).
inline constexpr std::size_t kHintBytes = 64;
// Keys that an acceptor accepts at a time: the previous, the current and the next one. Each costs
// a MAC for every peer that connects.
inline constexpr std::size_t kHandshakeKeys = 3;
// The longest reason of a choice of provider, and of why a provider is not available, which may be
// a long text with advice.
inline constexpr std::size_t kChoiceReasonBytes = 512;
inline constexpr std::size_t kChoiceCauseBytes = 160;
inline constexpr Nanos kHandshakeTimeout = std::chrono::seconds(5);
// Time for a connecting peer's first proof: two round trips, and a busy peer.
inline constexpr Nanos kFirstProofTimeout = std::chrono::seconds(1);
// Handshakes in progress per listener. A full listener drops a connection whose peer has not proved
// itself; if none may be dropped, the next connection waits in the kernel's backlog.
inline constexpr std::size_t kPendingHandshakes = 256;
// Age before which a connection is never dropped: kSilentLeastTime without a HELLO,
// kAnswerLeastTime with. The first is short: dropping 256 every 20 ms lets nanoctrl's probe, which
// waits 200 ms, pass a backlog of 1,000 strangers. The second allows for a long round trip.
inline constexpr Nanos kSilentLeastTime = std::chrono::milliseconds(20);
inline constexpr Nanos kAnswerLeastTime = std::chrono::milliseconds(200);
// Retries of a handshake that the peer ended without an answer, and the pause before the first
// retry. Each later pause is twice the one before.
inline constexpr int kHandshakeRetries = 3;
inline constexpr Nanos kHandshakePause = std::chrono::milliseconds(20);
// Connections that one turn of the loop accepts, so that a burst of them does not hold up existing
// connections.
inline constexpr int kAcceptsPerTurn = 16;
// Without descriptors or memory for one more connection, the listener looks again after this long.
inline constexpr Nanos kAcceptBackoff = std::chrono::milliseconds(100);
// Threads that look up names; a lookup may hang for half a minute, and others wait behind it.
inline constexpr std::size_t kResolverThreads = 8;
// Addresses of one name that are tried.
inline constexpr std::size_t kResolvedAddresses = 8;

// ---- outages
// The default of outage_tolerated: how long a peer may be unreachable before its connections end. A
// link that is down for five seconds does not end them, and operations on a dead host end within
// ten.
inline constexpr Nanos kOutageTolerated = std::chrono::seconds(5);
// The range of outage_tolerated. The keepalive of the kernel counts in seconds. No operation waits
// for an hour: operations have deadlines.
inline constexpr Nanos kOutageMin = std::chrono::seconds(1);
inline constexpr Nanos kOutageMax = std::chrono::hours(1);
// Keepalive asks each second in an outage of up to so long, and less often in a longer one,
// because the kernel takes at most 127 questions.
inline constexpr Nanos kKeepaliveSpan = std::chrono::seconds(60);

// ---- tcp
// The most bytes of one direction that are not yet in flight, and that are in flight. On loopback
// only, where the kernel's tuning lets megabytes pile up: a message would wait behind all of them,
// and they would leave the caches before they are read (measured: transport/tcp/README.md).
inline constexpr int kLoopbackUnsentBytes = 128 * 1024;
inline constexpr int kLoopbackWindowBytes = 1024 * 1024;
// Data that was sent so shortly before keepalive is switched on may still be unacknowledged.
inline constexpr Nanos kKeepaliveRecent = std::chrono::seconds(1);
// Keepalive is switched off this long after the last work, not at once: two system calls per call
// would cost more than the call.
inline constexpr Nanos kKeepaliveLinger = std::chrono::seconds(2);

// ---- shm
// The size of the ring of one direction, and of a record. Bulk data goes past the rings where
// possible; otherwise its two copies overlap in pieces of a record, of which two fit the
// first-level cache.
inline constexpr std::uint32_t kRingBytes = 128 * 1024;
inline constexpr std::uint32_t kRingRecordBytes = 16 * 1024;
// A ring without traffic gives its pages back after once to twice this time. A window onto a region
// that its owner has closed keeps the memory, so it is unmapped after at most this time.
inline constexpr Nanos kRingIdle = std::chrono::seconds(2);
// The largest ring that a peer may bring.
inline constexpr std::uint32_t kMaxRingBytes = 16 * 1024 * 1024;
// The most connections of one port; a multiple of 64.
inline constexpr std::uint32_t kShmPeers = 1024;
// The most rings that one turn looks at; the peers of other rings use the bell.
inline constexpr std::size_t kShmWatched = 8;
// The most regions of one side that its peer maps, and that the peer asks for before it has
// answers. Other regions go through the rings.
inline constexpr std::size_t kExports = 256;
inline constexpr std::size_t kWindows = kExports;
inline constexpr std::size_t kWindowsAsked = 64;
// The most regions that peers may write by their address: of one connection, and of this process.
// Each takes an entry in the list of mappings that the kernel keeps of the process, which has room
// for 65,530.
inline constexpr std::size_t kGatedExports = 192;
inline constexpr std::size_t kGates = 8192;
// The most bytes that one peer may have this process map: its address space of 47 bits serves
// several peers.
inline constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 42;
// The bytes of windows that one turn of the loop unmaps, or less than twice that: about a
// millisecond.
inline constexpr std::size_t kUnmapBytes = 16 * 1024 * 1024;
// A local socket with a full backlog is tried again after this long.
inline constexpr Nanos kLocalSocketRetry = std::chrono::milliseconds(1);

// ---- verbs
// Work requests of one post: one doorbell. Longer chains gain nothing (prior art: 32 reach 10 M/s).
inline constexpr std::uint32_t kChainRequests = 32;
// One in this many work requests of a batch asks for a completion, and so does the last one, so
// that the send queue gets its room back in pieces.
inline constexpr std::uint32_t kSignalInterval = 256;
// Most short messages in a row that are posted without asking for a completion.
inline constexpr std::uint32_t kMessageSignalInterval = 16;
// Depth of the send queue of the message queue pair: one less than a power of two;
// Options::send_queue_depth says why.
inline constexpr std::uint32_t kMessageDepth = 511;
// Depth of the send queue of each data queue pair but the first. Only the first takes batches of
// many work requests; a deep queue costs memory, and time at each connection.
inline constexpr std::uint32_t kSideDepth = 511;
// A work request of at least this many bytes asks for a completion, so that slow paths show
// progress.
inline constexpr std::uint64_t kSignalBytes = 512 * 1024;
// Most bytes of one work request, so that other work gets its turn, and a region can be closed in
// the middle.
inline constexpr std::uint64_t kWorkRequestBytes = 1024 * 1024;
// A batch of at least this many bytes is spread over the data queue pairs if its work requests have
// at least the second number of bytes. The number of small work requests is what limits them; one
// doorbell for 32 of them serves them best.
inline constexpr std::uint64_t kStripeBytes = 1024 * 1024;
inline constexpr std::uint64_t kStripePartBytes = 64 * 1024;
// Most local pieces that one work request gathers or scatters; each piece takes 16 bytes in every
// entry of the send queue.
inline constexpr std::uint32_t kGatherParts = 8;
// Work requests of all endpoints of a port, and those that each endpoint has for itself: 200 peers
// reserve 6,400.
inline constexpr std::uint32_t kPortWorkRequests = 24 * 1024;
inline constexpr std::uint32_t kReservedWorkRequests = 32;
inline constexpr std::uint32_t kMaxPortEndpoints = 4096;
// Send buffers of a port, for messages that do not go inline: 1,024 x 8 KiB at most, made as they
// are used.
inline constexpr std::uint32_t kSendBuffers = 1024;
// Most completions of one poll, and most polls in one turn of the loop.
inline constexpr int kPollBatch = 32;
inline constexpr int kPollsPerTurn = 8;
// Polls with completions that may pass before slots are posted again and sent messages are
// completed.
inline constexpr int kPatientPolls = 16;
// A device that refuses receives is asked again after this long.
inline constexpr Nanos kReceiveRetry = std::chrono::milliseconds(10);
// Queue pairs whose work was not flushed within this time are destroyed all the same.
inline constexpr Nanos kFlushBound = std::chrono::seconds(2);
// Longest wait for the last receive of a queue pair: some drivers never report it.
inline constexpr Nanos kLastReceiveBound = std::chrono::milliseconds(100);
// A device that failed for good is opened again after the first value. Each later pause is twice
// the one before, up to the second value.
inline constexpr Nanos kReopenFirst = std::chrono::milliseconds(100);
inline constexpr Nanos kReopenLongest = std::chrono::seconds(10);
// After a goodbye of the peer: how long its earlier messages may take to come out of our completion
// queue.
inline constexpr Nanos kGoodbyeBound = std::chrono::seconds(1);
// An operation that is under way for this long is logged, once, with its state.
inline constexpr Nanos kStuckAfter = std::chrono::seconds(5);

// ---- memory on verbs
// The size of the parts of one registration is a multiple of this: one huge page.
inline constexpr std::uint64_t kRegistrationPart = 2 * 1024 * 1024;
// Interval, and total time, of the attempts to end a registration that a peer's work still holds.
inline constexpr Nanos kDeregisterTurn = std::chrono::milliseconds(5);
inline constexpr Nanos kDeregisterBound = std::chrono::seconds(1);

}  // namespace slime::transport::limits
