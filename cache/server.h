#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/limits.h"
#include "base/result.h"
#include "cache/limits.h"
#include "cache/stats.h"
#include "transport/memory.h"

namespace slime {
class PeerAgent;
}

namespace slime::cache {

struct CacheServerOptions {
  std::uint64_t memory_bytes = 0;                       // of objects; allocated and touched at the start
  transport::Pages pages = transport::Pages::kDefault;  // of that memory
  std::uint64_t slab_bytes = limits::kSlabBytes;        // the largest slab: a power of two
  Nanos reservation_ttl = limits::kReservationTtl;
  Nanos lease_ttl = limits::kLeaseTtl;
  unsigned high_percent = limits::kHighPercent;
  unsigned low_percent = limits::kLowPercent;
  // Reads every object again at its seal and refuses it with kCorrupt when the writer's checksum does not
  // match. Off by default: readers check it anyway, and this costs the server a pass over the bytes.
  bool verify_on_seal = false;
};

// Serves a cache on an agent: the arena, as one region that peers may only read and one that they may only
// write, and the service "cache", which hands out places in it. The bytes of objects move past this code, by
// one-sided operations of the clients. Thread: any.
class CacheServer {
 public:
  // The agent outlives it and has served no cache before. kResourceExhausted when the machine has not that
  // much memory to give; kInvalidArgument for bad options. `clock` outlives the agent.
  static Result<std::unique_ptr<CacheServer>> start(PeerAgent& agent, const CacheServerOptions& options,
                                                    const Clock& clock = steady_clock());
  ~CacheServer();  // close()
  CacheServer(const CacheServer&) = delete;
  CacheServer& operator=(const CacheServer&) = delete;

  [[nodiscard]] StoreStats stats() const;

  // Refuses new requests with kUnavailable, withdraws the regions and gives the memory back: when it returns
  // no peer touches it. The objects are gone. Idempotent.
  Status close(Nanos bound = slime::limits::kCloseBound);

 private:
  class State;
  explicit CacheServer(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

// What the machine, or the control group of this process, has left. Zero if it does not say.
std::uint64_t available_memory_bytes();

}  // namespace slime::cache
