#pragma once

#include <cstddef>

#include "base/clock.h"

namespace slime::limits {

// Names of peers, services, methods, regions and scopes: long enough for
// "namespace/model/worker-0123", short enough for any frame.
inline constexpr std::size_t kNameBytes = 255;
// Error texts on the wire; longer texts are cut.
inline constexpr std::size_t kErrorTextBytes = 1024;
// A secret shared by the members of a scope.
inline constexpr std::size_t kTokenBytes = 1024;

// Default timeout of an operation.
inline constexpr Nanos kOperationDeadline = std::chrono::seconds(30);
// Default bound of a close; operations left then are cut off.
inline constexpr Nanos kCloseBound = std::chrono::seconds(2);

// A log file is rotated at this size, and this many old files are kept: 64 MiB at most.
inline constexpr std::size_t kLogFileBytes = 16 << 20;
inline constexpr std::size_t kLogFileCount = 3;
// One line of a log; longer lines are cut.
inline constexpr std::size_t kLogLineBytes = 4096;

}  // namespace slime::limits
