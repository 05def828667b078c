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
// How long a loop spins without work before it sleeps. Longer than a loopback round trip (about 10
// us), far shorter than a scheduler slice, because machines with two cores are common.
inline constexpr Nanos kLoopSpin = std::chrono::microseconds(20);
// How long a loop without a thread spins at most while answers keep coming within that time. Longer
// than a round trip between two processes that sleep and are woken, also on a slow machine:
// otherwise the callers, which do nothing but wait, would always sleep.
inline constexpr Nanos kCallerSpin = std::chrono::milliseconds(1);
// The same for the thread of a loop. Longer than it takes a thread of the peer to handle a batch of
// messages; not much longer than a wake-up, which the spin saves.
inline constexpr Nanos kThreadSpin = std::chrono::microseconds(100);
// How many times a spinning loop runs its pollers between two looks at the descriptors.
inline constexpr int kLoopPolls = 64;
// A loop whose pollers have work looks at the descriptors after this many turns, or earlier, once
// kLoopFdsEvery has passed.
inline constexpr int kLoopTurnsWithoutFds = 64;
inline constexpr Nanos kLoopFdsEvery = std::chrono::microseconds(200);
// Replaces kLoopFdsEvery for a loop whose descriptors had events within the last kLoopFdsRecent: an
// agent may have peers over shm and over tcp.
inline constexpr Nanos kLoopFdsOften = std::chrono::microseconds(2);
inline constexpr Nanos kLoopFdsRecent = std::chrono::milliseconds(2);
// A waiting caller that drives the loop runs a whole turn once in this many turns; in the other
// turns it only runs the pollers.
inline constexpr unsigned kLoopLooks = 8;
// A thread that has spun this long without work yields its processor before each further turn:
// otherwise the process that it waits for may get no processor until this thread's time slice is
// used up. Longer than a running peer takes to answer.
inline constexpr Nanos kLoopYieldAfter = std::chrono::microseconds(3);
// A loop's thread whose pollers always have work yields its processor this often. Peers on the
// same processor would wait for its whole time slice otherwise, which is several milliseconds.
inline constexpr Nanos kLoopBusyYield = std::chrono::microseconds(100);
// How long a waiting caller drives the loop before it checks whether its wait is over, and lets
// other waiting callers check.
inline constexpr Nanos kLoopWaitTurn = std::chrono::milliseconds(10);
inline constexpr std::size_t kLoopEventsPerTurn = 64;
// How often the sleeping thread of a loop looks at its timers and at lazily deferred work.
inline constexpr Nanos kLoopLongestSleep = std::chrono::seconds(1);
// How long a caller that drives in place of the loop's thread spins at most, if spinning saves it
// from sleeping.
inline constexpr Nanos kLoopHelpSpin = std::chrono::microseconds(150);
// A sleep of a waiting caller that ends this soon makes the next wait spin for kLoopHelpSpin. It is
// longer than that, because it contains the time that sleeping threads of both sides take to wake.
inline constexpr Nanos kLoopSoon = std::chrono::microseconds(300);
// After so many spins in vain more than with work, a caller that drives sleeps at once. Each
// kLoopVainWaits-th wait spins, to see whether that has changed.
inline constexpr int kLoopVainSpins = 2;
inline constexpr unsigned kLoopVainWaits = 16;
// How long such a caller sleeps in place of the loop's thread before it leaves the loop to it.
inline constexpr Nanos kLoopHelpRest = std::chrono::milliseconds(10);
// A wait with less time left than this yields instead of sleeping: the kernel may end a sleep this
// much too late.
inline constexpr Nanos kLoopShortestSleep = std::chrono::microseconds(50);
// How many times a caller yields its processor while it waits for the loop's thread to let it drive
// the loop, which the thread does when it has nothing to do.
inline constexpr int kLoopHandOverYields = 16;
// A caller that has driven the loop this long in one wait, as for bulk data, lets another one that
// waits drive: the reply to a call then finds its caller awake.
inline constexpr Nanos kLoopLongWait = std::chrono::microseconds(500);
// A caller that has slept this long is taken to sleep as long when it waits next.
inline constexpr Nanos kLoopLongSleep = std::chrono::milliseconds(5);
// How long the other one tries: longer than a step of bulk data.
inline constexpr Nanos kLoopHandOver = std::chrono::microseconds(400);
// Rounds of deferred work that a caller runs before it leaves the loop and the rest to the loop's
// thread.
inline constexpr int kLoopLastTurns = 4;
// How long a loop's thread pauses after it found a caller driving the loop. kLoopPolledNap is for
// loops whose callers poll: such a caller drives again before the pause ends.
inline constexpr Nanos kLoopNap = std::chrono::microseconds(50);
// Longest pause of a loop's thread that stays aside, since callers drive again and again.
inline constexpr Nanos kLoopLongestNap = std::chrono::microseconds(500);
// The same while other callers sleep until bulk data has moved: each look delays a call by 20 us.
inline constexpr Nanos kLoopPatientNap = std::chrono::milliseconds(2);
// After so many pauses in which no caller began an operation beside others, such a thread sleeps
// until an event again.
inline constexpr int kLoopAsideLooks = 64;
// How many times a caller tries to drive while such a thread looks, which takes less than 1 us.
inline constexpr int kLoopAsideTries = 256;
inline constexpr Nanos kLoopPolledNap = std::chrono::milliseconds(1);

// ---- messages and credits
// Size of a receive slot. Larger payloads are long messages (below), or are read by the receiver
// from the sender's memory.
inline constexpr std::uint32_t kSlotBytes = 8 * 1024;
// The largest long message: one that is larger than a receive slot, on a wire that takes them. A
// body of 256 KiB, and room for its header and for what encoding adds.
inline constexpr std::uint32_t kLongMessageBytes = 256 * 1024 + 8 * 1024;
// A long message of more than kLongFewSlots receive slots takes a multiple of kLongSlotStep of
// them: so its buffers have few sizes, and are found again.
inline constexpr std::uint32_t kLongFewSlots = 8;
inline constexpr std::uint32_t kLongSlotStep = 4;
// The most bytes of free buffers that a port keeps for long messages.
inline constexpr std::size_t kLongKeptBytes = 2 * 1024 * 1024;
// Receive slots that all endpoints of one port share: 4,096 x 8 KiB = 32 MiB at most, allocated at
// first use.
inline constexpr std::uint32_t kPoolSlots = 4096;
// Credits that every endpoint gives its peer, even when idle. A port can have 4,096 / 8 = 512 peers
// before it refuses one.
inline constexpr std::uint32_t kBaseCredits = 8;
// Free credits that notifications may not use, so that calls go on while the peer does not take
// notifications. None are kept if the peer's initial credits are fewer than twice as many.
inline constexpr std::uint32_t kMessageCredits = 4;
// Credits that one busy endpoint may hold.
inline constexpr std::uint32_t kMaxCredits = 256;
// A sender that sent nothing for this long gives back the credits beyond the base.
inline constexpr Nanos kCreditIdle = std::chrono::milliseconds(500);
// Limits, in bytes and in parts, of a message that may be sent within send(). A longer message is
// sent later, together with other messages of its turn.
inline constexpr std::uint32_t kPromptBytes = 256;
inline constexpr std::size_t kPromptParts = 7;

// ---- one-sided operations
// The largest frame of bulk data, in bytes. Messages go between frames, so this bounds how long a
// message waits behind bulk data.
inline constexpr std::uint32_t kChunkBytes = 256 * 1024;
// The most operations of one endpoint that are posted and not completed; the next is refused.
inline constexpr std::size_t kMaxOperations = 4096;
// Acks of writes may be collected: until this many bytes were written since a write that asked for
// an ack at once, and for kAckPatience at most.
inline constexpr std::uint64_t kAckBytes = 512 * 1024;
inline constexpr Nanos kAckPatience = std::chrono::milliseconds(1);
// The most requests (reads and atomics) of one side that may be unanswered. Its endpoint queues
// further requests.
inline constexpr std::uint32_t kReadWindow = 64;
// The most regions of one device.
inline constexpr std::size_t kMaxRegions = 1 << 20;

// ---- soft engine
// Size of the receive buffer: one read of the wire fills it with many small frames. Bulk data that
// does not fit is read straight into its destination.
inline constexpr std::size_t kReceiveBufferBytes = 64 * 1024;
// If the last frames had a payload of at least kReceiveBulkBytes, the next read takes at most
// kReceiveAroundBulk bytes into the receive buffer: enough for headers. Payload bytes in the buffer
// must be copied once more.
inline constexpr std::size_t kReceiveBulkBytes = 32 * 1024;
inline constexpr std::size_t kReceiveAroundBulk = 4 * 1024;
// The most frames of one burst, which is one write to the wire.
inline constexpr std::size_t kBurstFrames = 256;
// The most blocks of one frame that lists blocks, and the most bytes of its payload: a list of 64
// blocks of 1 KiB fits. Blocks longer than kListedBlock have frames of their own: they gain
// nothing.
inline constexpr std::size_t kListedBlocks = 64;
inline constexpr std::uint64_t kListedBytes = 65 * 1024;
inline constexpr std::uint64_t kListedBlock = 4 * 1024;
// No frame is staged behind this many listed blocks.
inline constexpr std::size_t kBurstBlocks = 256;
// The most small frames of a burst: the rest of the burst is for bulk data, which small frames must
// not starve.
inline constexpr std::size_t kBurstSmallFrames = 48;
// Bytes that one endpoint moves in each direction before the other endpoints of its loop get their
// turn.
inline constexpr std::size_t kTurnBytes = 1024 * 1024;
// Replace kTurnBytes, kChunkBytes and kCopyStepBytes while messages move beside bulk data, because
// messages wait for the step that is under way. A block that is larger than kSharedCopyBytes is
// copied kSharedPieceBytes in a turn: the kernel's copies have a cost for each turn, so smaller
// blocks are not divided.
inline constexpr std::size_t kSharedTurnBytes = 128 * 1024;
inline constexpr std::uint32_t kSharedChunkBytes = 64 * 1024;
inline constexpr std::uint64_t kSharedCopyBytes = 256 * 1024;
inline constexpr std::uint64_t kSharedPieceBytes = 32 * 1024;
// So many bytes of bulk data without a message count as bulk data alone. Large calls, whose bodies
// are bulk data, keep the long steps.
inline constexpr std::uint64_t kBulkAlone = 4 * 1024 * 1024;
// The most buffers of sent messages that an endpoint keeps to use them again.
inline constexpr std::size_t kSpareMessageBuffers = 32;
// The bounds of PortOptions::slot_bytes.
inline constexpr std::uint32_t kMinSlotBytes = 256;
inline constexpr std::uint32_t kMaxSlotBytes = 1024 * 1024;
// The bound of PortOptions::pool_slots.
inline constexpr std::uint32_t kMaxPoolSlots = 1 << 20;

// ---- copies past the wire
// Most bytes that one endpoint copies itself in one turn of its loop; it moves as many over the
// wire. A peer that takes its memory back waits for the end of such a turn, 20 to 60 us.
inline constexpr std::uint64_t kCopyStepBytes = 1024 * 1024;
// Each block counts for at least this many of the kCopyStepBytes, so that a turn also ends after
// many small blocks.
inline constexpr std::uint64_t kCopyStepLeast = 256;
// A failed copy operation counts for this many of the kCopyStepBytes: a caller that posts the
// operation again and again must not keep the turn for ever.
inline constexpr std::uint64_t kCopyStepFailed = 16 * 1024;
// A batch is copied within the call that posts it if it has at most this many bytes, at most
// kPromptCopyBlocks blocks, and no operation in front of it.
inline constexpr std::uint64_t kPromptCopyBytes = 64 * 1024;
// Replaces kPromptCopyBytes for posts whose bytes the kernel copies: larger batches are better
// copied together with others.
inline constexpr std::uint64_t kPromptFetchBytes = 16 * 1024;
inline constexpr std::size_t kPromptCopyBlocks = 16;
// The most blocks that one system call copies from or to the memory of a peer, and that one kFetch
// frame names. The blocks of one frame have at most kChunkBytes bytes together.
inline constexpr std::size_t kFetchBlocks = 256;
// The most bytes of its memory that a side may ask its peer to read and that the peer has not yet
// reported as read: messages wait behind these reads.
inline constexpr std::uint64_t kFetchAhead = 1024 * 1024;
// After reading this many bytes the reader reports it, so that the asking side asks for more before
// the rest is read.
inline constexpr std::uint64_t kFetchTold = kFetchAhead / 2;
// A write has its bytes in its frames, instead of asking the peer to read them, if it has fewer
// bytes than this or blocks shorter than kFetchLeastBlock on average: the kernel looks up a page
// for each piece of memory, which takes longer than copying 1 KiB twice (at 4 KiB both ways were
// equally fast).
inline constexpr std::uint64_t kFetchLeastBytes = 32 * 1024;
inline constexpr std::uint64_t kFetchLeastBlock = 4 * 1024;
// How long closing a region on the loop waits for a peer's copy to end before it gives the region
// other pages. Long enough for many copies, too short for others on the loop to notice.
inline constexpr Nanos kLoanTurn = std::chrono::milliseconds(2);
// Interval at which a side checks whether its peer's copy of its memory has ended.
inline constexpr Nanos kLoanLook = std::chrono::microseconds(50);
// The longest interval between checks whether a peer's copy has ended. The interval grows to this
// value while a connection ends whose peer does not run.
inline constexpr Nanos kLoanLookMost = std::chrono::milliseconds(20);
// The shortest block, in bytes, that is copied with stores that bypass the caches. A copy has to
// wait for the first lines of its block, which are too large a part of a shorter block.
inline constexpr std::size_t kColdCopyBytes = 16 * 1024;
// Bytes at the beginning of a block shorter than kColdCopyBytes that are prefetched before the
// block is copied.
inline constexpr std::size_t kAskedBytes = 4 * 64;
// Size of the last-level cache in bytes that is assumed if the kernel does not report one.
inline constexpr std::size_t kUsualCacheBytes = 32 * 1024 * 1024;

// ---- handshake
// The largest handshake frame, in bytes. The largest frames in use have names (2 x 257), ids and a
// MAC, and either eight offers, or a reason and provider parameters.
inline constexpr std::uint32_t kHandshakeFrameBytes = 4096;
// The longest name of a provider, and the most bytes of parameters that a provider sends to the
// peer in the handshake.
inline constexpr std::size_t kProviderNameBytes = 32;
inline constexpr std::size_t kProviderParameterBytes = 1024;
// The most providers that an initiator offers.
inline constexpr std::size_t kOffers = 8;
// Most bytes of the hint of one offer (Device::hint()).
inline constexpr std::size_t kHintBytes = 64;
// Keys that an acceptor accepts at a time: the previous, the current and the next one. Each key
// costs the acceptor one MAC for every peer that connects.
inline constexpr std::size_t kHandshakeKeys = 3;
// The longest text that explains the choice of a provider, in bytes. In it, the reason why one
// provider is not available, which may be long advice, is cut to kChoiceCauseBytes.
inline constexpr std::size_t kChoiceReasonBytes = 512;
inline constexpr std::size_t kChoiceCauseBytes = 160;
inline constexpr Nanos kHandshakeTimeout = std::chrono::seconds(5);
// Time within which a connecting peer must give its first proof: enough for two round trips and a
// busy peer.
inline constexpr Nanos kFirstProofTimeout = std::chrono::seconds(1);
// Handshakes in progress per listener. A full listener drops a connection whose peer has not proved
// itself; if none may be dropped, the next connection waits in the kernel's backlog.
inline constexpr std::size_t kPendingHandshakes = 256;
// Age before which a connection is never dropped to make room: kSilentLeastTime if no HELLO has
// come, else kAnswerLeastTime. kSilentLeastTime is short: dropping 256 connections every 20 ms lets
// nanoctrl's probe, which waits 200 ms, pass a backlog of 1,000. kAnswerLeastTime allows for a long
// round trip.
inline constexpr Nanos kSilentLeastTime = std::chrono::milliseconds(20);
inline constexpr Nanos kAnswerLeastTime = std::chrono::milliseconds(200);
// Retries of a handshake after the peer ended it without an answer, and the pause before the first
// retry. Each later pause is twice as long as the one before.
inline constexpr int kHandshakeRetries = 3;
inline constexpr Nanos kHandshakePause = std::chrono::milliseconds(20);
// The most connections that one turn of the loop accepts, so that many new connections do not hold
// up the existing ones.
inline constexpr int kAcceptsPerTurn = 16;
// How long a listener that has no descriptor or memory for a connection waits before it accepts
// again.
inline constexpr Nanos kAcceptBackoff = std::chrono::milliseconds(100);
// The most threads that look up names. A lookup may hang for half a minute; if all threads hang,
// further lookups wait.
inline constexpr std::size_t kResolverThreads = 8;
// Addresses of one name that are tried.
inline constexpr std::size_t kResolvedAddresses = 8;

// ---- outages
// Default of outage_tolerated: how long a peer may be unreachable before its connections end. A
// link that is down for five seconds ends no connection, and operations on a dead host end within
// ten seconds.
inline constexpr Nanos kOutageTolerated = std::chrono::seconds(5);
// Range of outage_tolerated. The minimum is a second because the kernel's keepalive counts in
// seconds. The maximum is an hour because operations have deadlines and do not wait longer.
inline constexpr Nanos kOutageMin = std::chrono::seconds(1);
inline constexpr Nanos kOutageMax = std::chrono::hours(1);
// If outage_tolerated is at most this, the kernel sends a keepalive probe each second, else less
// often: the kernel allows at most 127 probes.
inline constexpr Nanos kKeepaliveSpan = std::chrono::seconds(60);

// ---- tcp
// The most bytes of one direction that the kernel may hold unsent, and that may be in flight. Only
// for loopback, where the kernel's tuning lets megabytes pile up: a message would wait behind all
// of them, and they would leave the caches before they are read (measured:
// transport/tcp/README.md).
inline constexpr int kLoopbackUnsentBytes = 128 * 1024;
inline constexpr int kLoopbackWindowBytes = 1024 * 1024;
// A write of a socket of at least kPackedLeast parts copies its parts of at most kPackedPart bytes
// into one buffer, which takes a burst of short blocks. The kernel takes longer for many small
// parts than that copy does (measured: transport/tcp/README.md).
inline constexpr std::size_t kPackedLeast = 16;
inline constexpr std::size_t kPackedPart = 2048;
inline constexpr std::size_t kPackedBytes = 272 * 1024;
// Data written less than this long before keepalive is switched on may still be unacknowledged.
inline constexpr Nanos kKeepaliveRecent = std::chrono::seconds(1);
// Keepalive is switched off this long after the last work. Switching at once would cost two system
// calls per call, which take longer than the call.
inline constexpr Nanos kKeepaliveLinger = std::chrono::seconds(2);

// ---- shm
// Size of the ring of one direction, and of a record in it. Bulk data bypasses the rings where
// possible. Otherwise it is copied twice, a record at a time, so that both copies run at the same
// time and two records fit the first-level cache.
inline constexpr std::uint32_t kRingBytes = 128 * 1024;
inline constexpr std::uint32_t kRingRecordBytes = 16 * 1024;
// A ring without traffic gives its pages back after one to two times this interval. A window
// (mapping) of a region that its owner has closed keeps the memory allocated, so it is unmapped
// after at most this interval.
inline constexpr Nanos kRingIdle = std::chrono::seconds(2);
// The largest ring, in bytes, that a peer may bring.
inline constexpr std::uint32_t kMaxRingBytes = 16 * 1024 * 1024;
// The most connections of one port; a multiple of 64.
inline constexpr std::uint32_t kShmPeers = 1024;
// The most rings that a port looks at in each turn. The peers of other rings signal the port's
// bell.
inline constexpr std::size_t kShmWatched = 8;
// The most regions of one side that its peer may map (kExports, kWindows), and for which the peer
// may await an answer at a time (kWindowsAsked). The data of other regions goes through the rings.
inline constexpr std::size_t kExports = 256;
inline constexpr std::size_t kWindows = kExports;
inline constexpr std::size_t kWindowsAsked = 64;
// The most regions that peers may write by their address: kGatedExports for one connection, kGates
// for this process. Each takes an entry in the kernel's list of the process's mappings, which has
// room for 65,530.
inline constexpr std::size_t kGatedExports = 192;
inline constexpr std::size_t kGates = 8192;
// The most bytes of one peer's memory that this process maps, so that its address space of 47 bits
// is enough for several peers.
inline constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 42;
// One turn of the loop stops unmapping windows once it has unmapped this many bytes (less than
// twice as many in all), which takes about a millisecond.
inline constexpr std::size_t kUnmapBytes = 16 * 1024 * 1024;
// How long until a local socket whose peer had a full backlog is tried again.
inline constexpr Nanos kLocalSocketRetry = std::chrono::milliseconds(1);

// ---- verbs
// Most work requests that one post chains, with one doorbell. Longer chains gain nothing (prior
// art: chains of 32 reach 10 M/s).
inline constexpr std::uint32_t kChainRequests = 32;
// In a batch, one in this many work requests, and the last one, asks for a completion, so that the
// send queue becomes free part by part.
inline constexpr std::uint32_t kSignalInterval = 256;
// In a chain of several operations, an operation whose end lies at least this many bytes behind the
// last request that asks for a completion asks for one, too. Smaller operations complete with the
// chain's last one. So operations of 4 KiB, several in flight, still overlap their completions with
// the next posts.
inline constexpr std::uint64_t kSignalRunBytes = 16 * 1024;
// When a lane is chosen for the operations that one turn posts, this many bytes count as much as a
// work request: large operations are spread over the lanes, small ones share a doorbell.
inline constexpr std::uint64_t kLaneBytes = 4 * 1024;
// Most short messages in a row that are posted without asking for a completion.
inline constexpr std::uint32_t kMessageSignalInterval = 16;
// Depth of the send queue of the message queue pair: one less than a power of two;
// Options::send_queue_depth says why.
inline constexpr std::uint32_t kMessageDepth = 511;
// Depth of the send queue of each data queue pair but the first. Only the first takes batches of
// many work requests. A deep queue costs memory, and makes connecting slower.
inline constexpr std::uint32_t kSideDepth = 511;
// A work request of at least this many bytes asks for a completion, so that progress is visible on
// slow paths.
inline constexpr std::uint64_t kSignalBytes = 512 * 1024;
// Most bytes of one work request. The bound lets other work have its turn, and lets a region be
// closed in the middle of a transfer.
inline constexpr std::uint64_t kWorkRequestBytes = 1024 * 1024;
// A batch is spread over the data queue pairs if it has at least kStripeBytes bytes, and its blocks
// have at least kStripePartBytes on average. A batch of small blocks is limited by their number,
// and is fastest with one doorbell for 32 of them.
inline constexpr std::uint64_t kStripeBytes = 1024 * 1024;
inline constexpr std::uint64_t kStripePartBytes = 64 * 1024;
// Most local pieces that one work request gathers or scatters; each piece takes 16 bytes in every
// entry of the send queue.
inline constexpr std::uint32_t kGatherParts = 8;
// Work requests that all endpoints of a port may have in flight together (kPortWorkRequests), and
// the part that is reserved for each endpoint: 200 peers reserve 6,400.
inline constexpr std::uint32_t kPortWorkRequests = 24 * 1024;
inline constexpr std::uint32_t kReservedWorkRequests = 32;
inline constexpr std::uint32_t kMaxPortEndpoints = 4096;
// The most send buffers of a port, for messages that are not sent inline: 1,024 x 8 KiB, allocated
// when they are first needed.
inline constexpr std::uint32_t kSendBuffers = 1024;
// The most completions of one ibv_poll_cq(), and the most such calls in one turn of the loop.
inline constexpr int kPollBatch = 32;
inline constexpr int kPollsPerTurn = 8;
// After at most this many polls that found completions, receive slots are posted again and sent
// messages are completed.
inline constexpr int kPatientPolls = 16;
// How long until receives are posted again after the device refused them.
inline constexpr Nanos kReceiveRetry = std::chrono::milliseconds(10);
// A queue pair whose work requests were not flushed within this time is destroyed without waiting
// longer.
inline constexpr Nanos kFlushBound = std::chrono::seconds(2);
// Longest wait for the event that reports the last receive of a queue pair: some drivers never
// report it.
inline constexpr Nanos kLastReceiveBound = std::chrono::milliseconds(100);
// Pauses between attempts to open a device that failed for good: kReopenFirst before the first
// attempt, then twice as long each time, up to kReopenLongest.
inline constexpr Nanos kReopenFirst = std::chrono::milliseconds(100);
inline constexpr Nanos kReopenLongest = std::chrono::seconds(10);
// How long the endpoint waits, after a goodbye of the peer, for earlier messages of the peer to
// come out of the completion queue.
inline constexpr Nanos kGoodbyeBound = std::chrono::seconds(1);
// An operation that has been in flight for this long is logged once, with its state.
inline constexpr Nanos kStuckAfter = std::chrono::seconds(5);

// ---- memory on verbs
// A large region is registered in parts, whose size is a multiple of this: one huge page.
inline constexpr std::uint64_t kRegistrationPart = 2 * 1024 * 1024;
// Interval, and total time, of the attempts to deregister memory that the work of a peer still
// uses.
inline constexpr Nanos kDeregisterTurn = std::chrono::milliseconds(5);
inline constexpr Nanos kDeregisterBound = std::chrono::seconds(1);

}  // namespace slime::transport::limits
