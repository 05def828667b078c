#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "agent/peer_agent.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "kv/geometry.h"

namespace slime::kv {

struct CacheOptions {
  // Names the cache among those of its agent: 1 to 64 letters, digits, '_' and '-'.
  std::string name = "cache";
  Rights rights = Rights::kReadWrite;  // of peers
};

// The paged KV cache of this process, which peers find with connect() (kv/remote.h), write to and
// read from. Movable. Thread: any.
class Cache {
 public:
  // Allocates zeroed memory for all layers. `agent` must outlive the cache. An agent serves one
  // cache of a name at a time. Errors: kInvalidArgument for the geometry or the name;
  // kAlreadyExists; kResourceExhausted.
  static Result<Cache> allocate(PeerAgent& agent, const Geometry& geometry, CacheOptions options = {});
  // Like allocate(), over memory of the caller: for each layer, the regions of
  // Geometry::regions(), in order. Each must have at least blocks x block_bytes of its region. The
  // caller keeps the memory alive until the cache is closed.
  static Result<Cache> over(PeerAgent& agent, const Geometry& geometry, std::span<const MutableBytes> memory,
                            CacheOptions options = {});
  Cache() = default;
  ~Cache();  // close(), within 2 s
  Cache(Cache&&) noexcept = default;
  Cache& operator=(Cache&& other) noexcept;

  [[nodiscard]] const Geometry& geometry() const;
  [[nodiscard]] const std::string& name() const;
  // Returns a region of a layer: the layer by the model's number, the region by its number in
  // Geometry::regions(). The cache must have both.
  [[nodiscard]] const MemoryRegion& region(std::uint32_t layer, std::uint32_t region) const;

  // Waits until peers have written all heads of this layer, with this request's number. Errors:
  // kDeadlineExceeded; kInvalidArgument if the cache does not have the layer; kResourceExhausted
  // for more than limits::kRequests requests; kCancelled after forget(); kUnavailable after
  // close(). Do not call on the loop.
  Status wait_layer(std::uint64_t request, std::uint32_t layer, Nanos timeout);
  // Sets the handler that is called once for each layer of a request, when all its heads have
  // arrived; replaces an earlier handler, which is not running any more then. Set it before peers
  // know of the cache. Thread: the loop, so be short. The handler must not call on_layer() or
  // close().
  void on_layer(std::function<void(std::uint32_t layer, std::uint64_t request)> handler);
  // Forgets the layers of a request, so that its number can be used again. Call it when no writer
  // works on the request any more: a layer that arrives later is remembered again. The cache
  // remembers limits::kRequests requests; later ones are refused at their writers.
  void forget(std::uint64_t request);

  // Closes the regions; after it no peer touches the memory. Peers that connect get kUnavailable,
  // and waits end with it. Idempotent. Errors: as MemoryRegion::close().
  Status close(Nanos timeout = slime::limits::kCloseBound);

  struct State;
  [[nodiscard]] const std::shared_ptr<State>& state() const { return state_; }

 private:
  explicit Cache(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

namespace limits {

// Requests with layers that have arrived or are waited for, and that are not forgotten. Some
// kilobytes each.
inline constexpr std::size_t kRequests = 16384;

}  // namespace limits
}  // namespace slime::kv
