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
// Bytes of frames of one channel that wait for a credit: further requests are refused.
inline constexpr std::size_t kQueueBytes = 64 << 20;
// User messages of one channel that no receive has taken.
inline constexpr std::size_t kInboxMessages = 4096;
inline constexpr std::size_t kInboxBytes = 64 << 20;
// The largest request, reply or user message: a size that a process may hold twice.
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{64} << 30;
// Bytes that the process holds for all its peers ("Memory" in rpc/README.md). One connection may
// hold a quarter: enough for the requests and answers of 64 calls of 16 MiB.
inline constexpr std::uint64_t kMemoryBytes = std::uint64_t{10} << 30;
// Time after a call's deadline at which an unread answer is revoked. A caller that runs has given
// the call up by then.
inline constexpr Nanos kAnswerGrace = std::chrono::seconds(5);
// Most answers (replies, acknowledgements, releases) of one channel that wait for a credit, per
// unanswered request that the peer may have. A healthy peer causes at most two, and a release for
// each request of this side. A peer above the limit takes no answers, and is reset.
inline constexpr std::size_t kAnswersPerRequest = 4;
// Time in which expel() tells the peer the reason.
inline constexpr Nanos kExpelBound = std::chrono::milliseconds(250);
// Method names that one channel knows by number; calls of more methods carry their names.
inline constexpr std::size_t kMaxMethods = 4096;
// Signatures cached per method. A call with another signature sends it in full.
inline constexpr std::size_t kSignatures = 16;

// Metadata of one request: entries, and bytes of keys and values together. Enough for two tokens
// and a trace; the message also holds the names.
inline constexpr std::size_t kMetadataEntries = 32;
inline constexpr std::size_t kMetadataBytes = 4096;
// The bound of a tracestate by W3C.
inline constexpr std::size_t kTracestateBytes = 512;

// Bytes of one read of a pull. Each read has its own deadline, so that large payloads have time,
// and stuck reads are noticed.
inline constexpr std::uint64_t kPullBytes = 16 << 20;
// Most reads of one channel in progress at a time. All of them, 8 x 16 MiB, must end within the 30
// s of a read, so slower links than 4.5 MB/s are not supported.
inline constexpr std::size_t kMaxActivePulls = 8;
// Another read begins only while the reads in progress have fewer bytes in total: enough to keep
// any link busy, and few enough to be in the CPU caches when they are used.
inline constexpr std::uint64_t kActivePullBytes = 32 << 20;

// Defaults of StreamOptions::window and window_bytes.
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

// Attachments of one body. Each lent attachment costs its receiver a registration.
inline constexpr std::size_t kMaxAttachments = 1024;
// Attachments up to this size travel inline even if the whole body does not fit into one message: a
// registration and a read cost more than two copies.
inline constexpr std::size_t kInlineAttachmentBytes = 512;
// Bodies and attachments of at least this size get a lasting registration. Over shm the peer then
// lets the kernel copy, which is faster than the rings from about this size, and needs no work of
// the lender.
inline constexpr std::size_t kLendLastingBytes = 128 * 1024;
// Received bytes of at least this size get blocks of their own; so many bytes of free blocks are
// kept.
inline constexpr std::size_t kReceivedBlockBytes = 64 * 1024;
inline constexpr std::uint64_t kReceivedKeptBytes = 64 << 20;
// Limits of blocks that the peer may map: bytes of one block (16 MiB hold the loop up for 8 ms), of
// all blocks of one connection, and of all connections. A connection keeps its blocks until it
// ends. Bytes without a block go into other memory, over shm at a half or a third of the speed.
inline constexpr std::uint64_t kReceivedBlockMost = 16 << 20;
inline constexpr std::uint64_t kReceivedBlocksBytes = 64 << 20;
inline constexpr std::uint64_t kReceivedBlocksAll = 256 << 20;
// Blocks of one read: bounds a read of many small attachments.
inline constexpr std::size_t kPullBlocks = 256;
// Bytes of the dtype and dimensions of an attachment that is an array.
inline constexpr std::size_t kDtypeBytes = 64;
inline constexpr std::size_t kArrayDimensions = 64;

// Handler threads: more than the two cores of a common machine, because handlers wait.
inline constexpr std::size_t kServerWorkers = 4;
inline constexpr std::size_t kServerQueue = 1024;

// Initial bytes of an encoder: a small body costs one allocation.
inline constexpr std::size_t kSmallBody = 256;
// Small bodies that one thread keeps for reuse, and the largest of them: the default bound of
// inline bodies.
inline constexpr std::size_t kPooledBodies = 64;
inline constexpr std::size_t kPooledBodyBytes = 8 * 1024;
// Bytes of large bodies that the process keeps for reuse: making fresh pages takes longer than
// copying into them.
inline constexpr std::size_t kLargeBody = 64 * 1024;
inline constexpr std::uint64_t kLargeBodiesBytes = 64 << 20;

// msgpack: nesting of containers. Deeper than any real argument, and far from a stack overflow.
inline constexpr std::size_t kMsgpackDepth = 64;
// Objects in one body. Each takes 24 bytes when it is unpacked; send large arrays of numbers as
// bytes.
inline constexpr std::uint64_t kMsgpackObjects = 16 << 20;

}  // namespace slime::rpc::limits
