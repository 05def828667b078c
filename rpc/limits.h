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

// Most calls of one channel that wait for a reply.
inline constexpr std::size_t kMaxCalls = 64 * 1024;
// Most bytes of frames of one channel that wait for a credit. Above that, requests are refused.
inline constexpr std::size_t kQueueBytes = 64 << 20;
// Most user messages of one channel that no receive has taken, and most bytes of them.
inline constexpr std::size_t kInboxMessages = 4096;
inline constexpr std::size_t kInboxBytes = 64 << 20;
// Bytes of the largest request, reply or user message: few enough that a process can hold two of
// them.
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{64} << 30;
// Most bytes that the process holds for all its peers ("Memory" in rpc/README.md). One connection
// may hold a quarter of that: enough for the requests and answers of 64 calls of 16 MiB.
inline constexpr std::uint64_t kMemoryBytes = std::uint64_t{10} << 30;
// Time between a call's deadline and the moment at which an unread answer is revoked. A caller that
// is still running has given up the call by then.
inline constexpr Nanos kAnswerGrace = std::chrono::seconds(5);
// Most answers (replies, acknowledgements, releases) of one channel that wait for a credit, per
// unanswered request that the peer may have. A healthy peer causes at most two, and a release for
// each request of this side. The connection of a peer above the limit is reset: that peer takes no
// answers.
inline constexpr std::size_t kAnswersPerRequest = 4;
// Most time that expel() takes to tell the peer the reason.
inline constexpr Nanos kExpelBound = std::chrono::milliseconds(250);
// Most methods that one channel calls by number. Calls of further methods carry the method's names.
inline constexpr std::size_t kMaxMethods = 4096;
// Most signatures that are cached per method. A call with a further signature always sends its
// hash.
inline constexpr std::size_t kSignatures = 16;

// Most metadata entries of one request, and most bytes of keys and values together. Enough for two
// tokens and a trace; the names of the method are in the same message.
inline constexpr std::size_t kMetadataEntries = 32;
inline constexpr std::size_t kMetadataBytes = 4096;
// The bound of a tracestate by W3C.
inline constexpr std::size_t kTracestateBytes = 512;

// Most bytes of one read of lent memory. Each read has a deadline of its own, so that large
// payloads have enough time, and stuck reads are still noticed.
inline constexpr std::uint64_t kPullBytes = 16 << 20;
// A rest of at most this size is read with the piece before it. So a body of 16 MiB and what
// encoding adds takes one read: its reader does not wait for the first pieces of all other bodies.
inline constexpr std::uint64_t kPullRestBytes = 1 << 20;
// Most reads of one channel in progress at a time. All of them, 8 x 16 MiB, must end within the 30
// s deadline of a read, so links slower than 4.5 MB/s are not supported.
inline constexpr std::size_t kMaxActivePulls = 8;
// A further read begins only while the reads in progress have fewer bytes than this in total:
// enough to keep any link busy, and few enough that the bytes are still in the CPU caches when they
// are used.
inline constexpr std::uint64_t kActivePullBytes = 32 << 20;

// Defaults of StreamOptions::window and window_bytes.
inline constexpr std::size_t kStreamWindow = 64;
inline constexpr std::uint64_t kStreamBytes = 64 << 20;
// Default idle timeout of a stream: longer than the pauses of a text generation, and equal to the
// default deadline of an operation.
inline constexpr Nanos kStreamIdle = std::chrono::seconds(30);
// Time after which a reader returns its credits even if they are less than half a window, so that
// the writer can tell a slow reader from a reader that has stopped.
inline constexpr Nanos kStreamCreditPause = std::chrono::seconds(1);
// Most writes of one stream that wait for credits, and most reads that wait for messages.
inline constexpr std::size_t kStreamWaiting = 1024;

// Most attachments of one body. Each lent attachment costs its receiver a registration.
inline constexpr std::size_t kMaxAttachments = 1024;
// Attachments of at most this size travel inline even if the body does not fit into one message: a
// registration and a read cost more than two copies.
inline constexpr std::size_t kInlineAttachmentBytes = 512;
// Bodies and attachments of at least this size are lent with a lasting registration. Over shm the
// kernel then copies for the peer. From about this size that is faster than the rings, and the
// lending process does no work.
inline constexpr std::size_t kLendLastingBytes = 128 * 1024;
// kReceivedBlockBytes: received bytes of at least this size get a block of their own.
// kReceivedKeptBytes: most bytes of free blocks that are kept.
inline constexpr std::size_t kReceivedBlockBytes = 64 * 1024;
inline constexpr std::uint64_t kReceivedKeptBytes = 64 << 20;
// Registered blocks of memory that the peer may map (codec/connection_blocks.h).
// kReceivedBlockMost: bytes of the largest attachment that is read into one (making 16 MiB delays
// the loop for 8 ms). kBodyBlockMost: bytes of the largest body that is copied into one to be lent,
// or read into one: a MiB of the user's, and room for what encoding adds. Beyond that the kernel's
// copy is as fast. kBlockLeast: the size of a small block.
inline constexpr std::uint64_t kReceivedBlockMost = 16 << 20;
inline constexpr std::uint64_t kBodyBlockMost = (1 << 20) + (64 << 10);
inline constexpr std::uint64_t kBlockLeast = 16 * 1024;
// Most bytes of all blocks of one connection, and of all connections; and most blocks, since each
// has a descriptor. Bytes that get no block go into other memory, which over shm has a half or a
// third of the speed.
inline constexpr std::uint64_t kBlocksBytes = 64 << 20;
// Most bytes of blocks of one connection that are lent at a time: over shm the peer maps them, so
// their pages count in both processes. Enough for 64 bodies of 256 KiB.
inline constexpr std::uint64_t kBlocksLentBytes = 16 << 20;
inline constexpr std::uint64_t kBlocksAllBytes = 256 << 20;
inline constexpr std::size_t kBlocks = 32;
inline constexpr std::size_t kBlocksAll = 128;
// A block that was not used between two looks, this far apart, is closed. A connection keeps idle
// blocks of kBlocksIdleBytes, so that a small call after a pause finds one.
inline constexpr Nanos kBlocksIdle = std::chrono::seconds(2);
inline constexpr std::uint64_t kBlocksIdleBytes = 64 * 1024;
// Most parts of one read; limits a read of many small attachments.
inline constexpr std::size_t kPullBlocks = 256;
// For an attachment that is an array: most bytes of its dtype text, and most dimensions.
inline constexpr std::size_t kDtypeBytes = 64;
inline constexpr std::size_t kArrayDimensions = 64;

// Default number of handler threads: more than the two cores of a common machine, because handlers
// wait.
inline constexpr std::size_t kServerWorkers = 4;
inline constexpr std::size_t kServerQueue = 1024;

// Initial capacity of an encoded body in bytes, so that a small body costs one allocation.
inline constexpr std::size_t kSmallBody = 256;
// Number of small bodies that one thread keeps for reuse, and the capacity of the largest of them,
// which is the default bound of inline bodies.
inline constexpr std::size_t kPooledBodies = 64;
inline constexpr std::size_t kPooledBodyBytes = 8 * 1024;
// kLargeBody: bytes from which on a body counts as large. kLargeBodiesBytes: most bytes of large
// bodies that the process keeps for reuse, because making fresh pages takes longer than copying
// into them.
inline constexpr std::size_t kLargeBody = 64 * 1024;
inline constexpr std::uint64_t kLargeBodiesBytes = 64 << 20;

// Most levels of nested msgpack containers: more than any real argument has, and far from a stack
// overflow.
inline constexpr std::size_t kMsgpackDepth = 64;
// Most msgpack objects in one body. Each takes 24 bytes when unpacked; send large arrays of numbers
// as bytes instead.
inline constexpr std::uint64_t kMsgpackObjects = 16 << 20;

}  // namespace slime::rpc::limits
