#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/future.h"
#include "base/result.h"
#include "transport/memory.h"

namespace slime {

class MemoryRegion;
using transport::RemoteRegion;

// Direction of a batch: kRead copies remote -> local, kWrite local -> remote.
enum class Transfer : std::uint8_t { kRead, kWrite };

// Blocks of one length: block i is at local_offsets[i] and remote_offsets[i]. Both spans have the
// same size.
struct BlockOffsets {
  const MemoryRegion& local;
  std::span<const std::uint64_t> local_offsets;
  const RemoteRegion& remote;
  std::span<const std::uint64_t> remote_offsets;
  std::uint64_t length_bytes = 0;  // of each block
};

// Blocks of one length by number: block i is at local_offset + local_ids[i] * block_bytes of the
// local region, and at remote_offset + remote_ids[i] * block_bytes of the remote one. Both lists
// have the same size. They are read only during the call that takes them.
struct BlockIds {
  const MemoryRegion& local;
  const RemoteRegion& remote;
  std::span<const std::uint64_t> local_ids;
  std::span<const std::uint64_t> remote_ids;
  std::uint64_t block_bytes = 0;
  std::uint64_t local_offset = 0;
  std::uint64_t remote_offset = 0;
};

// Blocks of one length at equal distances: block i is at offset + i * stride.
struct BlockStrides {
  const MemoryRegion& local;
  std::uint64_t local_offset = 0;
  std::uint64_t local_stride = 0;
  const RemoteRegion& remote;
  std::uint64_t remote_offset = 0;
  std::uint64_t remote_stride = 0;
  std::uint64_t count = 0;
  std::uint64_t length_bytes = 0;  // of each block
};

// Limits the time of a post. A duration converts to a PostOptions with this timeout:
// batch.post(5s).
struct PostOptions {
  PostOptions() = default;
  template <std::convertible_to<Nanos> Timeout>
  PostOptions(Timeout its_timeout, Nanos its_stall = {}) : timeout(its_timeout), stall(its_stall) {}

  // Timeout of the post. Zero: the default of the Peer that made the batch. Nanos::max(): with a
  // stall bound no timeout; without one the transport's default, from the time when the connection
  // takes the post.
  Nanos timeout{};
  // The stall bound; zero: none. A post ends with kDeadlineExceeded when it has had no connection
  // for this long, or when its connection has moved no bytes of this agent's one-sided operations
  // for this long. A post that is on the wire then resets the connection, as after a timeout.
  Nanos stall{};
};

// A batch of copies with one peer that Peer::prepare() checks and binds once, posted many times:
// all blocks, or some by number (from 0). A post neither copies nor checks the list again, so it
// takes a short time that does not grow with the list. Posts may overlap; each is one operation, as
// Peer::read() is.
//
// A post ends with kAborted when the connection that its remote regions were looked up on has
// ended: look the regions up again, then rebind(). It ends with kInvalidArgument when a local
// region is closed. The batch keeps its agent and the registrations alive, never the memory. Cheap
// to copy: copies share the binding. Thread: any.
class PreparedBatch {
 public:
  PreparedBatch() = default;

  Future<None> post(PostOptions options = {}) const;
  // Posts the blocks with these numbers. Copies the numbers. Errors: kInvalidArgument for an empty
  // list or an unknown number.
  Future<None> post(std::span<const std::uint32_t> blocks, PostOptions options = {}) const;
  // Posts a write, after which the peer's on_imm handler gets `imm` once.
  Future<None> post_with_imm(std::uint32_t imm, PostOptions options = {}) const;
  Future<None> post_with_imm(std::uint32_t imm, std::span<const std::uint32_t> blocks,
                             PostOptions options = {}) const;

  // Copies the whole batch within this call if that needs neither the peer's program, nor a device,
  // nor a wait: at most 16 blocks and 64 KiB, of memory on this host. Otherwise returns false, and
  // nothing was started: call post(), which reports errors. post() copies such a batch in the same
  // way, and returns a finished future.
  [[nodiscard]] bool done_now() const;

  // Replaces remotes() by `remotes`, in order, for later posts of this object and of its copies.
  // Takes time proportional to the number of blocks. After an error nothing has changed. Errors: as
  // Peer::prepare(), and kInvalidArgument if the number of regions differs.
  Status rebind(std::span<const RemoteRegion> remotes) const;

  // Returns the remote regions in the order in which blocks first name them. Two RemoteRegion
  // objects are two regions, even if equal.
  [[nodiscard]] std::vector<RemoteRegion> remotes() const;
  [[nodiscard]] std::size_t size() const;            // blocks
  [[nodiscard]] std::uint64_t length_bytes() const;  // of all blocks
  [[nodiscard]] bool valid() const { return state_ != nullptr; }

  struct State;
  explicit PreparedBatch(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

}  // namespace slime
