#pragma once

#include <cstddef>

#include "base/clock.h"

namespace slime::limits {

// Most bytes in a name of a peer, service, method, region or scope: long enough for
// "namespace/model/worker-0123", short enough for any frame.
inline constexpr std::size_t kNameBytes = 255;
// Most bytes of an error text on the wire; longer texts are cut.
inline constexpr std::size_t kErrorTextBytes = 1024;
// Most bytes of the token, a secret that the members of a scope share.
inline constexpr std::size_t kTokenBytes = 1024;

// Default timeout of an operation.
inline constexpr Nanos kOperationDeadline = std::chrono::seconds(30);
// Default time that a close leaves to operations in flight. Operations that are left then are cut
// off.
inline constexpr Nanos kCloseBound = std::chrono::seconds(2);
// How long a thread that waits for futures of several agents drives one agent before the next: the
// longest that an agent without a thread of its own waits for its turn.
inline constexpr Nanos kWaitTurn = std::chrono::milliseconds(1);

// Blocks of at most this size are kept for reuse (block_pool.h): the records of operations are
// smaller. Per size, a thread keeps as many as it may have operations in flight without a lock.
inline constexpr std::size_t kPooledBlockBytes = 2048;
inline constexpr std::size_t kBlocksOfThread = 128;
inline constexpr std::size_t kBlocksOfProcess = 1024;

// Size at which a log file is rotated, and number of old files that are kept: 64 MiB at most in
// all.
inline constexpr std::size_t kLogFileBytes = 16 << 20;
inline constexpr std::size_t kLogFileCount = 3;
// Most bytes of one log line; longer lines are cut.
inline constexpr std::size_t kLogLineBytes = 4096;

}  // namespace slime::limits
