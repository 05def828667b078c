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

// Which way the bytes of a batch go: remote -> local, or local -> remote.
enum class Transfer : std::uint8_t { kRead, kWrite };

// Blocks of one length: block i is at local_offsets[i] and at remote_offsets[i], of which there are equally
// many.
struct BlockOffsets {
  const MemoryRegion& local;
  std::span<const std::uint64_t> local_offsets;
  const RemoteRegion& remote;
  std::span<const std::uint64_t> remote_offsets;
  std::uint64_t length_bytes = 0;  // of each
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
  std::uint64_t length_bytes = 0;  // of each
};

// Bounds how long a post may take. A duration alone is the deadline: batch.post(5s).
struct PostOptions {
  PostOptions() = default;
  template <std::convertible_to<Nanos> Deadline>
  PostOptions(Deadline its_deadline, Nanos its_stall = {}) : deadline(its_deadline), stall(its_stall) {}

  // Zero: that of the Peer which made the batch. Nanos::max() with a stall bound: none; without one the
  // transport's default holds from when the connection takes the post.
  Nanos deadline{};
  // The stall bound. Zero: none. A post ends with kDeadlineExceeded when it has had no connection for so
  // long; and when it has one, once that has moved no bytes of this agent's one-sided operations for so long.
  // A post that is on the wire then resets the connection, as at a deadline.
  Nanos stall{};
};

// A batch of copies with one peer that is checked and bound once, by Peer::prepare(), and posted many times:
// whole, or some of its blocks by number (0 is the first). A post does not copy or check the list again, so
// it takes the same short time for a long list. Posts may overlap; each is one operation, as Peer::read() is.
//
// A post answers kAborted when the connection that the remote regions were looked up on is gone: look them up
// again, then rebind(). kInvalidArgument when a local region is closed. The batch keeps its agent and the
// registrations, never the memory, alive. A cheap value: copies share the binding. Thread: any.
class PreparedBatch {
 public:
  PreparedBatch() = default;

  Future<None> post(PostOptions options = {}) const;
  // The blocks with these numbers, which are copied. kInvalidArgument for none, and for one that is not
  // there.
  Future<None> post(std::span<const std::uint32_t> blocks, PostOptions options = {}) const;
  // A write after which the peer's on_imm gets `imm` once.
  Future<None> post_with_imm(std::uint32_t imm, PostOptions options = {}) const;
  Future<None> post_with_imm(std::uint32_t imm, std::span<const std::uint32_t> blocks,
                             PostOptions options = {}) const;

  // Does the whole batch within this call, if that needs neither the peer's program, nor a device, nor a
  // wait: at most 16 blocks and 64 KiB, of memory on this host. False: nothing is under way; post() it, which
  // says what is wrong. post() does the same, and returns a future that is done.
  [[nodiscard]] bool done_now() const;

  // Puts these in the place of remotes(), in their order, for the posts that follow, also those of copies of
  // this value. Takes time for each block. Errors change nothing: as of Peer::prepare(), and kInvalidArgument
  // for another number of regions.
  Status rebind(std::span<const RemoteRegion> remotes) const;

  // The remote regions in the order in which the blocks first name them. Two objects are two regions.
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
