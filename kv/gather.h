#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/peer_agent.h"
#include "base/bytes.h"
#include "base/result.h"
#include "kv/move.h"
#include "kv/shards.h"

namespace slime::kv {

// A shard of one owner, for one of the tensors that are gathered.
struct GatherPiece {
  std::size_t tensor = 0;  // among those that are gathered
  std::size_t owner = 0;
  std::size_t shard = 0;  // among those of the owner
  bool operator==(const GatherPiece&) const = default;
};

// Chooses shards that together are each of `tensors` exactly once. Owners may have tensors that are
// not asked for. Shards that are equal, or whole, are replicas, which the tensors use in turn. The
// shards must be valid. Errors: kInvalidArgument if a tensor has another shape or other items at an
// owner, or its shards leave a gap or overlap.
Result<std::vector<GatherPiece>> plan_gather(std::span<const Tensor> tensors,
                                             std::span<const std::vector<Shard>> owners);

struct GatherOptions {
  std::string name = "shards";  // of the owners' Shards
  Nanos timeout{};              // of connect(); zero: 30 s
};

// Collects the shards of several owners (kv/shards.h) into whole tensors in memory of this process,
// with one-sided reads. Belongs to one connection with each owner: once one has ended, reads end
// with kUnavailable, and connect() makes a new Gather. Movable. Thread: any.
class Gather {
 public:
  // Asks all owners for their shards, and checks names, shapes and sizes: memory[i] has the bytes
  // of tensors[i]. The caller keeps it alive until the Gather is closed. `agent` must outlive the
  // Gather. Errors: as plan_gather(); kNotFound if an owner has no such shards; kUnavailable;
  // kDeadlineExceeded. Do not call on the loop.
  static Result<Gather> connect(PeerAgent& agent, std::span<const Peer> owners,
                                std::span<const Tensor> tensors, std::span<const MutableBytes> memory,
                                const GatherOptions& options = {});
  Gather() = default;
  ~Gather();  // close(), within 2 s
  Gather(Gather&&) noexcept = default;
  Gather& operator=(Gather&& other) noexcept;

  // Starts to read all shards. The Move counts operations as its layers. It succeeds only if all
  // bytes have arrived; after an error the contents of the memory are undefined. The owners must
  // not change their shards before the Move has ended. A dead owner ends it with kUnavailable, a
  // frozen one at the timeout with kDeadlineExceeded. `timeout` zero: 30 s.
  [[nodiscard]] Move read(Nanos timeout = {}) const;

  // Closes the regions: after it no byte lands in the memory. Idempotent. Errors: as
  // MemoryRegion::close().
  Status close(Nanos timeout = slime::limits::kCloseBound);

  struct State;

 private:
  explicit Gather(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

namespace limits {

// An operation of a gather has at most so many runs; it ends after the run with which it reaches so
// many bytes.
inline constexpr std::size_t kGatherRuns = 16384;
inline constexpr std::uint64_t kGatherBytes = 64 << 20;

}  // namespace limits
}  // namespace slime::kv
