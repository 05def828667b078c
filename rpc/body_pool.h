#pragma once

#include "base/bytes.h"

namespace slime::rpc {

// Memory of short bodies, of which each thread keeps a few: a caller that drives its loop itself encodes each
// call where the one before it was, without an allocation. Thread: any, each has its own.

// Empty, with room for a short body.
ByteVector take_body();
// Keeps it for take_body() of this thread, unless it is large or there are enough.
void give_body(ByteVector&& body) noexcept;

}  // namespace slime::rpc
