#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "agent/peer_agent.h"
#include "base/result.h"
#include "kv/cache.h"
#include "kv/geometry.h"
#include "kv/mapping.h"
#include "kv/move.h"

namespace slime::kv {

// The KV cache of a peer, as far as a cache of this process shares layers and heads with it.
// Belongs to one connection: once that has ended, transfers end with kUnavailable, and connect()
// makes a new Remote. Cheap to copy. Thread: any.
class Remote {
 public:
  Remote() = default;

  [[nodiscard]] const Geometry& geometry() const;  // the peer's
  [[nodiscard]] const Mapping& mapping() const;
  [[nodiscard]] const Peer& peer() const;  // of the one connection

  // Writes this cache's blocks `local_ids` to the peer's blocks `remote_ids`, in order, or reads
  // them from there: the layers and heads that both caches have, with one operation for each layer.
  // Copies the ids. Blocks that follow each other on both sides move as one. The source blocks must
  // not change until the Move has ended.
  //
  // No byte moves if an id is outside its cache, the lists have different sizes, the target has an
  // id twice, or this cache does not share the layer (kInvalidArgument). A dead peer ends the Move
  // with kUnavailable, a frozen one at the timeout with kDeadlineExceeded.
  Move write_blocks(std::span<const std::uint64_t> local_ids, std::span<const std::uint64_t> remote_ids,
                    const MoveOptions& options = {}) const;
  Move read_blocks(std::span<const std::uint64_t> local_ids, std::span<const std::uint64_t> remote_ids,
                   const MoveOptions& options = {}) const;

  struct State;
  explicit Remote(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

// Connects a cache of this process to the cache `name` of a peer (empty: the name of `cache`), and
// agrees on the geometry. Errors: kInvalidArgument, with both geometries in the text, if they
// cannot be mapped; kNotFound if the peer has no such cache; kUnavailable;
// kDeadlineExceeded. `timeout` zero: 30 s. Do not call on the loop.
Result<Remote> connect(const Peer& peer, const Cache& cache, std::string_view name = {}, Nanos timeout = {});

}  // namespace slime::kv
