#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/limits.h"

namespace slime::rpc::limits {

using slime::limits::kCloseBound;
using slime::limits::kErrorTextBytes;
using slime::limits::kNameBytes;

// Calls of one channel that wait for a reply.
inline constexpr std::size_t kMaxCalls = 64 * 1024;
// Frames of one channel that wait for a credit: the caller is told before memory grows.
inline constexpr std::size_t kQueueBytes = 64 << 20;
// User messages of one channel that nobody has received.
inline constexpr std::size_t kInboxMessages = 4096;
inline constexpr std::size_t kInboxBytes = 64 << 20;
// The largest request, reply or user message: what one process may sensibly hold twice.
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{64} << 30;
// Bytes that the process holds for all its peers ("Memory" in rpc/README.md). One connection may
// hold a quarter: enough for the requests and answers of 64 calls of 16 MiB.
inline constexpr std::uint64_t kMemoryBytes = std::uint64_t{10} << 30;
// Time after a call's deadline at which an unread answer is revoked. A caller that runs has given
// the call up by then.
inline constexpr Nanos kAnswerGrace = std::chrono::seconds(5);
// Answers (replies, acknowledgements, releases) of one channel that wait for a credit, for each request that
// the peer may have unanswered: at most two, and a release for each of our own. A peer that makes us queue
// more takes no answers, and is reset.
inline constexpr std::size_t kAnswersPerRequest = 4;
// How long a channel that its owner ends for a reason waits for the peer to hear the reason.
inline constexpr Nanos kExpelBound = std::chrono::milliseconds(250);
// Method names that one channel knows by number; calls of more methods carry their names.
inline constexpr std::size_t kMaxMethods = 4096;
inline constexpr std::size_t kSignatures =
    16;  // that one method is taken for; a call with one more shows it each time

// Metadata of one request: entries, and bytes of keys and values together. A token or two and a trace, in a
// message that has to hold the names, too.
inline constexpr std::size_t kMetadataEntries = 32;
inline constexpr std::size_t kMetadataBytes = 4096;
// W3C's own bound of a tracestate.
inline constexpr std::size_t kTracestateBytes = 512;

// A pull reads this much at a time: each read has its own deadline, so that a payload of any size may take
// its time while a stuck one is noticed.
inline constexpr std::uint64_t kPullBytes = 16 << 20;
// Reads of one channel under way. 8 x 16 MiB within 30 s is 4.5 MB/s: slower links are not worth this.
inline constexpr std::size_t kMaxActivePulls = 8;
// They begin one more only while those under way have less than this to read: enough for any link, and what
// is read lies in the caches when it is used.
inline constexpr std::uint64_t kActivePullBytes = 32 << 20;

// Messages that one end of a stream takes before its user has read any, and the bytes of them that it reads
// out of the peer's memory, or keeps in its own for the peer; a larger one goes alone.
inline constexpr std::size_t kStreamWindow = 64;
inline constexpr std::uint64_t kStreamBytes = 64 << 20;
// Default idle timeout of a stream: longer than the pauses of a text generation, and equal to the
// default deadline of an operation.
inline constexpr Nanos kStreamIdle = std::chrono::seconds(30);
// A slow reader returns its credits after this time even if they are less than half a window, so
// that the writer can tell it from a reader that has stopped.
inline constexpr Nanos kStreamCreditPause = std::chrono::seconds(1);
// Writes of one stream that wait for credits, and reads that wait for messages.
inline constexpr std::size_t kStreamWaiting = 1024;

// Attachments of one body. Each one that is not inline costs its receiver a registration.
inline constexpr std::size_t kMaxAttachments = 1024;
// Where all of a body does not fit into one message, those up to this travel inside of it all the same: for
// so few bytes a registration and a read cost more than two copies.
inline constexpr std::size_t kInlineAttachmentBytes = 512;
// Bodies and attachments of at least this are lent as memory that may be read more than once: the peer asks
// where it lies, and the kernel copies, which over shm beats the rings from about here on, and needs nothing
// of their owner meanwhile.
inline constexpr std::size_t kLendLastingBytes = 128 * 1024;
// What is received and has at least this lies in blocks of its own, of which so many bytes are kept for the
// next.
inline constexpr std::size_t kReceivedBlockBytes = 64 * 1024;
inline constexpr std::uint64_t kReceivedKeptBytes = 64 << 20;
// Blocks that the peer may map: the largest (making one holds the loop up, 16 MiB for some 8 ms), and how
// much of them one connection has, and all. A connection keeps its blocks, idle too, until it ends: where
// others have all of them, what comes goes into other memory, over shm at half or a third of the speed.
inline constexpr std::uint64_t kReceivedBlockMost = 16 << 20;
inline constexpr std::uint64_t kReceivedBlocksBytes = 64 << 20;
inline constexpr std::uint64_t kReceivedBlocksAll = 256 << 20;
// Blocks of one read: a pull of many small attachments goes on a piece at a time, too.
inline constexpr std::size_t kPullBlocks = 256;
// Of an attachment that is an array.
inline constexpr std::size_t kDtypeBytes = 64;
inline constexpr std::size_t kArrayDimensions = 64;

// Handler threads: two cores are common, and handlers wait.
inline constexpr std::size_t kServerWorkers = 4;
inline constexpr std::size_t kServerQueue = 1024;

// Bytes that an encoder sets out with: a small body costs one allocation.
inline constexpr std::size_t kSmallBody = 256;
// Bodies that one thread keeps for the next ones, and the largest: what goes eagerly is no larger by default.
inline constexpr std::size_t kPooledBodies = 64;
inline constexpr std::size_t kPooledBodyBytes = 8 * 1024;
// Large bodies that the process keeps, all together: fresh pages cost more than the bytes that come into
// them.
inline constexpr std::size_t kLargeBody = 64 * 1024;
inline constexpr std::uint64_t kLargeBodiesBytes = 64 << 20;

// msgpack: nesting of containers. Deeper than any sane argument, far below the stack.
inline constexpr std::size_t kMsgpackDepth = 64;
// Objects in one body. Unpacked, each takes 24 bytes whatever its size on the wire; large arrays of numbers
// belong into bytes.
inline constexpr std::uint64_t kMsgpackObjects = 16 << 20;

}  // namespace slime::rpc::limits
