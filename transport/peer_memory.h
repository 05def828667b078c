#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/copy_checks.h"
#include "transport/memory.h"

namespace slime::transport {

// Memory that Slime allocated may be mapped by a peer of the same host, which then copies by itself. These
// are the two sides of that, as the software engine sees them; shm/exports.h and shm/windows.h implement
// them.
//
// A copy and a revocation meet in two words that both processes map: the copier stores its ticket in
// `in_use`, then looks whether the owner still shows it; the owner takes it away, then looks at `in_use`. All
// four are sequentially consistent, so either the copier sees that it must not, or the owner sees that it
// does.

// ---- the owner's side

// One region shown to one peer. Thread: any.
class Loan {
 public:
  Loan() = default;
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  virtual ~Loan() = default;
  // The peer begins no copy any more. Final.
  virtual void revoke() = 0;
  // Once revoked: the peer may still be inside of a copy. False is final. Never true of a process that is
  // gone.
  [[nodiscard]] virtual bool busy() const = 0;
  // Revoked, and not busy any more.
  [[nodiscard]] virtual bool over() const = 0;
  // Once revoked: the memory has other pages now, so what the peer still does reaches nobody. It is over.
  virtual void let_go() = 0;
};

// What a peer maps.
struct Lent {
  UniqueFd memory;  // opened with no more rights than the region gives
  std::uint64_t length_bytes = 0;
  Rights rights = Rights::kLocal;
};

// Who has regions to show. Thread: any.
class Lender {
 public:
  // From here on the region's revocation reaches the loan. kNotFound, kPermissionDenied; kUnimplemented for
  // memory that Slime has not allocated.
  virtual Result<Lent> lend(Handle region, std::uint64_t key, std::shared_ptr<Loan> loan) = 0;

 protected:
  ~Lender() = default;
};

// Keys of regions that may be mapped are odd, so that nobody asks for one of the others.
inline bool is_lendable(const RegionDescriptor& region) {
  return region.key_count == 1 && (region.keys[0] & 1) != 0;
}

// ---- the peer's side

// A region of the peer, mapped here.
struct PeerWindow {
  std::byte* data = nullptr;
  std::uint64_t length_bytes = 0;  // of the mapping: never beyond it, whatever a descriptor says
  std::uint64_t key = 0;
  Rights rights = Rights::kLocal;
  std::uint64_t ticket = 0;
  std::atomic<std::uint64_t>* in_use = nullptr;
  const std::atomic<std::uint64_t>* shown = nullptr;

  [[nodiscard]] bool covers(const RegionDescriptor& region, Rights need, std::uint64_t offset,
                            std::uint64_t length) const {
    return region.keys[0] == key && allows(rights, need) && in_bounds(offset, length, length_bytes);
  }
  // Until end() the owner waits for us. False: it has taken the region away.
  [[nodiscard]] bool begin() const {
    in_use->store(ticket, std::memory_order_seq_cst);
    if (shown->load(std::memory_order_seq_cst) == ticket) return true;
    in_use->store(0, std::memory_order_release);
    return false;
  }
  // False: it was taken away meanwhile, so what was copied may have gone into memory that is the owner's no
  // more.
  [[nodiscard]] bool end() const {
    const bool still = shown->load(std::memory_order_seq_cst) == ticket;
    in_use->store(0, std::memory_order_release);
    return still;
  }
};

// The peer's memory as one connection reaches it beside its wire. Thread: the loop.
class PeerMemory {
 public:
  enum class Way {
    kDirect,  // through `window`, which stays until the next event
    kAsked,   // the peer has been asked; WireHandler::on_peer_memory() follows
    kWire,    // not at all
  };
  struct Reach {
    Way way = Way::kWire;
    const PeerWindow* window = nullptr;
  };
  virtual Reach reach(const RegionDescriptor& region) = 0;

 protected:
  ~PeerMemory() = default;
};

}  // namespace slime::transport
