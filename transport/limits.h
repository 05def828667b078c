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
// Longer than a loopback round trip (about 10 us), far shorter than a scheduler slice: two-core machines are
// common.
inline constexpr Nanos kLoopSpin = std::chrono::microseconds(20);
// The same for loops that their callers drive, while answers come at such a pace: waiting is all they do.
// Longer than a round trip between two that sleep and are woken, also on a slow machine: they would never
// stop sleeping else.
inline constexpr Nanos kCallerSpin = std::chrono::milliseconds(1);
// How often pollers are asked before the descriptors are; while they have work, for how many turns, and how
// long.
inline constexpr int kLoopPolls = 64;
inline constexpr int kLoopTurnsWithoutFds = 64;
// A caller that waits looks at the pollers alone, so often in a row but for one.
inline constexpr unsigned kLoopLooks = 8;
inline constexpr Nanos kLoopFdsEvery = std::chrono::microseconds(200);
// and this often if they had something a moment ago: an agent has peers over shm and over tcp.
inline constexpr Nanos kLoopFdsOften = std::chrono::microseconds(2);
inline constexpr Nanos kLoopFdsRecent = std::chrono::milliseconds(2);
// Whoever has spun this long in vain offers its processor to others before each further look. Longer than a
// peer that runs takes for an answer; what is waited for may otherwise be a process that has no processor,
// and comes only when our slice is used up.
inline constexpr Nanos kLoopYieldAfter = std::chrono::microseconds(3);
// A caller that waits drives this long before it looks whether it may stop, and lets others look.
inline constexpr Nanos kLoopWaitTurn = std::chrono::milliseconds(10);
inline constexpr std::size_t kLoopEventsPerTurn = 64;
// A loop's thread that sleeps looks at its timers and at lazily deferred work this often.
inline constexpr Nanos kLoopLongestSleep = std::chrono::seconds(1);
// How long a caller that helps spins at most, where that saves it from sleeping.
inline constexpr Nanos kLoopHelpSpin = std::chrono::microseconds(150);
// A wait with less time left yields instead of sleeping. The kernel ends each sleep up to so much too late,
// even one whose time has passed.
inline constexpr Nanos kLoopShortestSleep = std::chrono::microseconds(50);
// How often a caller that wants to help yields to the thread, which lets go when it has nothing to do.
inline constexpr int kLoopHandOverYields = 16;
// After several have waited at the same time nobody helps for this long: passing the drive around costs more.
inline constexpr Nanos kLoopCrowded = std::chrono::milliseconds(10);
// Rounds of deferred work that a helper runs before it leaves the rest to the thread.
inline constexpr int kLoopLastTurns = 4;
// The thread's pause after it found a caller driving. The second is for loops whose callers poll: they are
// back before it ends.
inline constexpr Nanos kLoopNap = std::chrono::microseconds(50);
inline constexpr Nanos kLoopPolledNap = std::chrono::milliseconds(1);

// ---- messages and credits
// One receive slot: the largest message. Larger payloads go by rendezvous.
inline constexpr std::uint32_t kSlotBytes = 8 * 1024;
// Receive slots that all endpoints of one port share: 4,096 x 8 KiB = 32 MiB at most, made as they are first
// used.
inline constexpr std::uint32_t kPoolSlots = 4096;
// What every endpoint keeps even when idle. 4,096 / 8 = 512 connected peers before a port refuses.
inline constexpr std::uint32_t kBaseCredits = 8;
// Credits that notifications leave to messages, if the peer's initial credits are at least twice as
// many. Calls go on while the peer does not take notifications.
inline constexpr std::uint32_t kMessageCredits = 4;
// What one endpoint may hold while it is busy.
inline constexpr std::uint32_t kMaxCredits = 256;
// A sender that sent nothing for this long gives back what exceeds the base.
inline constexpr Nanos kCreditIdle = std::chrono::milliseconds(500);
// The longest message that leaves at once, and not with others of its turn; and into how many parts it may be
// cut.
inline constexpr std::uint32_t kPromptBytes = 256;
inline constexpr std::size_t kPromptParts = 7;

// ---- one-sided operations
// One frame of bulk data; messages go between frames, so this bounds how long a message waits behind bulk.
inline constexpr std::uint32_t kChunkBytes = 256 * 1024;
// Posted and not completed operations of one endpoint; the next is refused.
inline constexpr std::size_t kMaxOperations = 4096;
// Acks of writes wait for others until so many bytes were written since the last ones, and for that long
// where the next write does not come.
inline constexpr std::uint64_t kAckBytes = 512 * 1024;
inline constexpr Nanos kAckPatience = std::chrono::milliseconds(1);
// Reads that one side may have asked of the other and not received, as requests; the initiator queues the
// rest.
inline constexpr std::uint32_t kReadWindow = 64;
// Regions of one device.
inline constexpr std::size_t kMaxRegions = 1 << 20;

// ---- soft engine
// One read of the wire brings many small frames; bulk beyond it goes straight to where it belongs.
inline constexpr std::size_t kReceiveBufferBytes = 64 * 1024;
// While payloads of at least the first size come, one read takes the second into the buffer: enough for
// headers. Payload bytes that get into the buffer are copied twice.
inline constexpr std::size_t kReceiveBulkBytes = 32 * 1024;
inline constexpr std::size_t kReceiveAroundBulk = 4 * 1024;
// Frames of one burst, which is one write to the wire.
inline constexpr std::size_t kBurstFrames = 64;
// What of a burst small frames may take, so that they cannot starve bulk data.
inline constexpr std::size_t kBurstSmallFrames = 48;
// What one endpoint moves in each direction before the others of its loop get their turn.
inline constexpr std::size_t kTurnBytes = 1024 * 1024;
// Buffers of sent messages that an endpoint keeps for the next ones.
inline constexpr std::size_t kSpareMessageBuffers = 32;
// The bounds of PortOptions::slot_bytes.
inline constexpr std::uint32_t kMinSlotBytes = 256;
inline constexpr std::uint32_t kMaxSlotBytes = 1024 * 1024;
// The bound of PortOptions::pool_slots.
inline constexpr std::uint32_t kMaxPoolSlots = 1 << 20;

// ---- copies past the wire
// What one endpoint copies in one turn of its loop, as much as of everything else; as long as that, 20 to 60
// us, an owner waits who takes its memory back.
inline constexpr std::uint64_t kCopyStepBytes = 1024 * 1024;
// What one block counts for at least: many small ones make a step as well.
inline constexpr std::uint64_t kCopyStepLeast = 256;
// What an operation counts for that fails: whoever posts it again at once must not keep the turn for ever.
inline constexpr std::uint64_t kCopyStepFailed = 16 * 1024;
// Batches of so many bytes and blocks are copied within the call that posts them, if nothing is in front of
// them.
inline constexpr std::uint64_t kPromptCopyBytes = 64 * 1024;
// Those that the kernel makes are better made together.
inline constexpr std::uint64_t kPromptFetchBytes = 16 * 1024;
inline constexpr std::size_t kPromptCopyBlocks = 16;
// What one call has the kernel read out of a peer's memory: blocks, of one chunk of bulk data together.
inline constexpr std::size_t kFetchBlocks = 256;
// What a peer may be asked to read before it has said that it did: messages wait behind that.
inline constexpr std::uint64_t kFetchAhead = 1024 * 1024;
// It is told after so many of these, before the rest is read: it asks for others meanwhile.
inline constexpr std::uint64_t kFetchTold = kFetchAhead / 2;
// Writes of fewer bytes bring them along, and those of shorter blocks: for each piece of memory the kernel
// looks up a page, which takes longer than copying 1 KiB twice (measured: 4 KiB takes as long either way).
inline constexpr std::uint64_t kFetchLeastBytes = 32 * 1024;
inline constexpr std::uint64_t kFetchLeastBlock = 4 * 1024;
// How long an owner on the loop waits for a copy of a peer to end before it moves its memory: many steps, and
// nothing that others on the loop would notice.
inline constexpr Nanos kLoanTurn = std::chrono::milliseconds(2);
// How often it looks.
inline constexpr Nanos kLoanLook = std::chrono::microseconds(50);
// And at last, when the end of a connection waits for a peer that does not run.
inline constexpr Nanos kLoanLookMost = std::chrono::milliseconds(20);
// The shortest block that may be copied past the caches: below it the first lines, which have to be waited
// for, are too much of it.
inline constexpr std::size_t kColdCopyBytes = 16 * 1024;
// Of a shorter one that is copied next.
inline constexpr std::size_t kAskedBytes = 4 * 64;
// The last level cache where the kernel does not say.
inline constexpr std::size_t kUsualCacheBytes = 32 * 1024 * 1024;

// ---- handshake
// A whole handshake frame. The largest real ones are names (2 x 257), ids and MAC with either eight offers,
// or a reason and provider parameters.
inline constexpr std::uint32_t kHandshakeFrameBytes = 4096;
// A provider's name, and what it tells the peer through the handshake.
inline constexpr std::size_t kProviderNameBytes = 32;
inline constexpr std::size_t kProviderParameterBytes = 1024;
// Providers that an initiator offers, and what it tells of each so that the acceptor can choose.
inline constexpr std::size_t kOffers = 8;
// Keys that an acceptor takes at a time: the previous, the current and the next one. Each costs a MAC for
// whoever connects.
inline constexpr std::size_t kHandshakeKeys = 3;
inline constexpr std::size_t kHintBytes = 64;
// Why a provider was chosen; and how much of why one is not there, which may be a long text with advice.
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
// How often a handshake that the peer ended without a word is begun again, and the pause before the first
// time, which doubles.
inline constexpr int kHandshakeRetries = 3;
inline constexpr Nanos kHandshakePause = std::chrono::milliseconds(20);
// Connections that one turn of the loop takes in, so that a burst of them does not hold up what is connected.
inline constexpr int kAcceptsPerTurn = 16;
// Without descriptors or memory for one more connection, the listener looks again after this long.
inline constexpr Nanos kAcceptBackoff = std::chrono::milliseconds(100);
// Threads that look up names; a lookup may hang for half a minute, and others wait behind it.
inline constexpr std::size_t kResolverThreads = 8;
// Addresses of one name that are tried.
inline constexpr std::size_t kResolvedAddresses = 8;

// ---- outages
// The default of outage_tolerated: how long a peer may be unreachable before its connections end.
// A link that was down for five seconds is no death, and what waits for a dead host ends within ten.
inline constexpr Nanos kOutageTolerated = std::chrono::seconds(5);
// The kernel's keepalive counts in seconds. Nothing waits for an hour: operations have deadlines.
inline constexpr Nanos kOutageMin = std::chrono::seconds(1);
inline constexpr Nanos kOutageMax = std::chrono::hours(1);
// Keepalive asks each second in an outage of up to so long, and less often in a longer one: the kernel takes
// at most 127 questions.
inline constexpr Nanos kKeepaliveSpan = std::chrono::seconds(60);

// ---- tcp
// On loopback only, where the kernel's own tuning lets megabytes pile up: a message then waits behind all of
// them, and they leave the caches before they are read (measured: transport/tcp/README.md). What is not yet
// in flight, and what is in flight, of one direction:
inline constexpr int kLoopbackUnsentBytes = 128 * 1024;
inline constexpr int kLoopbackWindowBytes = 1024 * 1024;
// What was sent so shortly before keepalive is switched on may still be unacknowledged.
inline constexpr Nanos kKeepaliveRecent = std::chrono::seconds(1);
// Keepalive is switched off this long after the last work, not at once: two system calls for each call would
// cost more than the call.
inline constexpr Nanos kKeepaliveLinger = std::chrono::seconds(2);

// ---- shm
// The ring of one direction. Bulk data goes past the rings where it can; what must go through them overlaps
// its two copies in pieces of a record, which still fit the first-level cache twice.
inline constexpr std::uint32_t kRingBytes = 128 * 1024;
inline constexpr std::uint32_t kRingRecordBytes = 16 * 1024;
// A ring over which nothing went for so long, or up to twice that, gives its pages back; and a window onto a
// region that its owner has closed is unmapped after this long at most: until then it keeps the memory.
inline constexpr Nanos kRingIdle = std::chrono::seconds(2);
// The largest ring that a peer may bring.
inline constexpr std::uint32_t kMaxRingBytes = 16 * 1024 * 1024;
// Connections of one port, a multiple of 64.
inline constexpr std::uint32_t kShmPeers = 1024;
// Rings that one turn looks at; peers of others ring.
inline constexpr std::size_t kShmWatched = 8;
// Regions of one side that its peer maps, and what the peer asks for before it has answers. Others go through
// the rings.
inline constexpr std::size_t kExports = 256;
inline constexpr std::size_t kWindows = kExports;
inline constexpr std::size_t kWindowsAsked = 64;
// Regions that peers may write by their address: of one connection, and of this process. Each takes an entry
// of the kernel's list of the process's mappings, which has room for 65,530.
inline constexpr std::size_t kGatedExports = 192;
inline constexpr std::size_t kGates = 8192;
// What one peer may have us map: address space of 47 bits is for more than one.
inline constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 42;
// What one turn of the loop unmaps of them, or less than twice that: about a millisecond.
inline constexpr std::size_t kUnmapBytes = 16 * 1024 * 1024;
// A local socket with a full backlog is tried again after this long.
inline constexpr Nanos kLocalSocketRetry = std::chrono::milliseconds(1);

// ---- verbs
// Work requests of one post: one doorbell. Longer chains gain nothing (prior art: 32 reach 10 M/s).
inline constexpr std::uint32_t kChainRequests = 32;
// Of a batch, every such request asks for a completion, and the last: the send queue gets its room back in
// pieces.
inline constexpr std::uint32_t kSignalInterval = 256;
// Short messages that need no completion of their own go unnoticed for so many.
inline constexpr std::uint32_t kMessageSignalInterval = 16;
// The message queue pair's send queue: one less than a power of two, as Options::send_queue_depth says why.
inline constexpr std::uint32_t kMessageDepth = 511;
// That of the data queue pairs behind the first, which alone takes batches of many work requests: a deep one
// costs memory, and time at each connection.
inline constexpr std::uint32_t kSideDepth = 511;
// A work request of so many bytes asks for a completion of its own, by which slow paths show progress.
inline constexpr std::uint64_t kSignalBytes = 512 * 1024;
// What one work request moves at most: others get their turn, and a region can be closed in the middle.
inline constexpr std::uint64_t kWorkRequestBytes = 1024 * 1024;
// A batch is spread over the data queue pairs from this size on, if its work requests are at least as large
// as the second number: small ones are bound by their number, which one doorbell for 32 of them serves best.
inline constexpr std::uint64_t kStripeBytes = 1024 * 1024;
inline constexpr std::uint64_t kStripePartBytes = 64 * 1024;
// Local pieces that one work request gathers or scatters; each takes 16 bytes in every entry of the send
// queue.
inline constexpr std::uint32_t kGatherParts = 8;
// Work requests of all endpoints of a port, and what each of them has for itself: 200 peers reserve 6,400.
inline constexpr std::uint32_t kPortWorkRequests = 24 * 1024;
inline constexpr std::uint32_t kReservedWorkRequests = 32;
inline constexpr std::uint32_t kMaxPortEndpoints = 4096;
// Send buffers of a port, for messages that do not go inline: 1,024 x 8 KiB at most, made as they are used.
inline constexpr std::uint32_t kSendBuffers = 1024;
// Completions of one poll, and polls of one turn of the loop.
inline constexpr int kPollBatch = 32;
inline constexpr int kPollsPerTurn = 8;
// Polls with completions that may pass before slots are posted again and sent messages are completed.
inline constexpr int kPatientPolls = 16;
// A device that refuses receives is asked again after this long.
inline constexpr Nanos kReceiveRetry = std::chrono::milliseconds(10);
// Queue pairs whose work was not flushed by then are destroyed all the same.
inline constexpr Nanos kFlushBound = std::chrono::seconds(2);
// Some drivers never say that a queue pair has given back its last receive: the wait for it ends here.
inline constexpr Nanos kLastReceiveBound = std::chrono::milliseconds(100);
// A device that failed for good is opened again after this long, then after twice as long, up to the second.
inline constexpr Nanos kReopenFirst = std::chrono::milliseconds(100);
inline constexpr Nanos kReopenLongest = std::chrono::seconds(10);
// A peer that said goodbye: how long messages that it sent before may take to come out of our completion
// queue.
inline constexpr Nanos kGoodbyeBound = std::chrono::seconds(1);
// An operation that is under way for this long is logged, once, with its state.
inline constexpr Nanos kStuckAfter = std::chrono::seconds(5);

// ---- memory on verbs
// What parts of one registration are a multiple of: one huge page.
inline constexpr std::uint64_t kRegistrationPart = 2 * 1024 * 1024;
// A driver that refuses to end a registration because a peer's work still holds it is asked again this often,
// for so long.
inline constexpr Nanos kDeregisterTurn = std::chrono::milliseconds(5);
inline constexpr Nanos kDeregisterBound = std::chrono::seconds(1);

}  // namespace slime::transport::limits
