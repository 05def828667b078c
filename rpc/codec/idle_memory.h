#pragma once

// Private to rpc.

#include "base/clock.h"

namespace slime::rpc {

// Frees the memory that the process keeps for large bodies (body_pool.h, received.h), once nothing
// has used the memory for limits::kBlocksIdle to twice as long. One connection sweeps for the whole
// process; the memory is freed on a thread of its own, since the kernel takes milliseconds for it.
// Thread: any.

// Sweeps, unless another connection does. `connection` is compared alone. Returns whether the
// connection has to call sweep_idle_memory() again, kBlocksIdle later: while memory is kept or in
// use, or while another connection sweeps, which may end.
bool sweep_idle_memory(const void* connection, TimePoint now);
// Ends the sweeping of a connection that ends. The next connection with a large body goes on.
void stop_sweeping(const void* connection) noexcept;

}  // namespace slime::rpc
