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
  std::uint64_t memory_bytes = 0;                       // memory for objects, allocated at the start
  transport::Pages pages = transport::Pages::kDefault;  // of that memory
  std::uint64_t slab_bytes = limits::kSlabBytes;        // size of the largest slab; a power of two
  Nanos reservation_ttl = limits::kReservationTtl;
  Nanos lease_ttl = limits::kLeaseTtl;
  unsigned high_percent = limits::kHighPercent;
  unsigned low_percent = limits::kLowPercent;
  // true: checks the checksum of every object when it is sealed, and refuses a wrong one with
  // kCorrupt. Off by default: readers check it anyway, and the check costs the server a pass over
  // the bytes.
  bool verify_on_seal = false;
};

// Serves a cache on an agent: the arena, as one region that peers may only read and another that
// they may only write, and the service "cache", which hands out places in the arena. Clients move
// the bytes of objects with one-sided operations, without this code. Thread: any.
class CacheServer {
 public:
  // `agent` and `clock` must outlive the server; `agent` must not have served a cache before.
  // Errors: kResourceExhausted if the machine has too little free memory; kInvalidArgument for bad
  // options.
  static Result<std::unique_ptr<CacheServer>> start(PeerAgent& agent, const CacheServerOptions& options,
                                                    const Clock& clock = steady_clock());
  ~CacheServer();  // close()
  CacheServer(const CacheServer&) = delete;
  CacheServer& operator=(const CacheServer&) = delete;

  [[nodiscard]] StoreStats stats() const;

  // Refuses new requests with kUnavailable, closes the regions and frees the memory: after it
  // returns no peer touches the memory. Drops all objects. Idempotent.
  Status close(Nanos timeout = slime::limits::kCloseBound);

 private:
  class State;
  explicit CacheServer(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

// Returns the free memory of the machine or of this process's control group, the smaller; zero if
// unknown.
std::uint64_t available_memory_bytes();

}  // namespace slime::cache
