#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "base/fence.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/copy_checks.h"
#include "transport/limits.h"
#include "transport/memory.h"

namespace slime::transport {

// A peer on the same host may copy without the wire. It maps memory that Slime allocated, and lets
// the kernel read and write all other memory by its address, if the kernel permits that. This
// header has both sides as the software engine sees them; shm/exports.h and shm/windows.h implement
// them.
//
// A copy and a revocation meet in two words that both processes map. The copier stores its ticket
// in `in_use`, then checks that the owner still shows the ticket in `shown`. The owner takes the
// ticket out of `shown`, then checks `in_use`. All four accesses are sequentially consistent, so
// either the copier sees that it must not copy, or the owner sees that a copy is in progress. The
// owner does not wait for a reader of memory that is not mapped: the reader checks `shown` again
// after it has read, and drops bytes that came too late. The owner waits for a writer of such
// memory; if the writer was stopped and goes on later, the kernel lets none of its bytes pass
// (shm/gate.h).

// ---- the owner's side

// The permission of one peer to copy to or from one region. Thread: any.
class Loan {
 public:
  Loan() = default;
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  virtual ~Loan() = default;
  // Forbids further copies by the peer. Final.
  virtual void revoke() = 0;
  // After revoke(): returns whether the peer may still be inside a copy. False is final. Always
  // false for a process that has ended.
  [[nodiscard]] virtual bool busy() const = 0;
  // Returns whether the loan is revoked and not busy any more.
  [[nodiscard]] virtual bool over() const = 0;
  // After revoke(): call when the memory has other pages, so that copies of the peer reach nothing.
  // Ends the loan.
  virtual void let_go() = 0;
};

// Memory that a peer maps, or reads by its address.
struct Lent {
  // to map, opened with at most the region's rights; none: read by address
  UniqueFd memory;
  std::uint64_t address = 0;  // in this process, of memory that is read by address
  std::uint64_t length_bytes = 0;
  Rights rights = Rights::kLocal;
};

// Lends the regions of this side to peers. Thread: any.
class Lender {
 public:
  // Lends a region. From here on, revoking the region revokes `loan`. Errors: kNotFound;
  // kPermissionDenied; kUnimplemented for memory that the kernel cannot read for other processes,
  // such as that of a device.
  virtual Result<Lent> lend(Handle region, std::uint64_t key, std::shared_ptr<Loan> loan) = 0;

 protected:
  ~Lender() = default;
};

// How a peer on the same host may reach a region. The region's key says so, so that a peer asks
// only for regions where asking helps. kMapped (odd keys): by mapping. kRead (multiples of 4): by
// its address. kOnce (other keys): do not ask.
enum class KeyClass : std::uint8_t { kRead, kMapped, kOnce };
inline KeyClass class_of(std::uint64_t key) {
  if ((key & 1) != 0) return KeyClass::kMapped;
  return (key & 2) != 0 ? KeyClass::kOnce : KeyClass::kRead;
}
inline bool is_mappable(std::uint64_t key) { return class_of(key) == KeyClass::kMapped; }
inline std::uint64_t make_key(std::uint64_t random, KeyClass kind) {
  if (kind == KeyClass::kMapped) return random | 1;
  return (random & ~std::uint64_t{3}) | (kind == KeyClass::kOnce ? 2 : 0);
}

// ---- the peer's side

// A region of the peer, mapped here or read by its address.
struct PeerWindow {
  std::byte* data = nullptr;  // null: not mapped
  std::uint64_t address = 0;  // address in the peer, of memory that is not mapped
  // of the region; copies never go beyond it, whatever a descriptor says
  std::uint64_t length_bytes = 0;
  std::uint64_t key = 0;
  Rights rights = Rights::kLocal;
  std::uint64_t ticket = 0;
  // of memory that is not mapped: address in the peer of the gate that writes pass; 0: no writes
  std::uint64_t gate = 0;
  std::atomic<std::uint64_t>* in_use = nullptr;
  const std::atomic<std::uint64_t>* shown = nullptr;

  [[nodiscard]] bool covers(const RemoteRegion& region, Rights need, std::uint64_t offset,
                            std::uint64_t length) const {
    return region.access().key == key && allows(rights, need) && in_bounds(offset, length, length_bytes) &&
           (mapped() || need != Rights::kRemoteWrite || gate != 0);
  }
  [[nodiscard]] bool mapped() const { return data != nullptr; }
  // Returns whether an owner that revokes the region waits for the end of such copies.
  [[nodiscard]] bool waited_for(Rights need) const { return mapped() || need == Rights::kRemoteWrite; }
  // Begins copies that need the right `need`, which covers() has checked. Returns false if the
  // owner has revoked the region. If waited_for(need), an owner that revokes waits until end().
  [[nodiscard]] bool begin(Rights need) const {
    if (!waited_for(need)) return shown->load(std::memory_order_seq_cst) == ticket;
    in_use->store(ticket, std::memory_order_seq_cst);
    if (shown->load(std::memory_order_seq_cst) == ticket) return true;
    in_use->store(0, std::memory_order_release);
    return false;
  }
  // Ends copies. Returns false if the owner revoked the region meanwhile: then the bytes may have
  // come from memory, or gone into memory, that the owner uses for something else.
  [[nodiscard]] bool end(Rights need) const {
    // Orders the copy before the check. After a read no full fence is needed, which would wait for
    // stores that are still on their way.
    if (need == Rights::kRemoteRead)
      load_fence();
    else
      full_fence();
    const bool still = shown->load(std::memory_order_seq_cst) == ticket;
    if (waited_for(need)) in_use->store(0, std::memory_order_release);
    return still;
  }
};

// Converts an address in the peer's process: for system calls, never to be dereferenced here.
inline std::byte* at_peer(std::uint64_t address) {
  return std::bit_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

// Blocks that one system call reads from the peer's memory, or writes to it.
class PeerBlocks {
 public:
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] bool full() const { return count_ == limits::kFetchBlocks; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Must not be called when full.
  void add(std::byte* here, std::uint64_t there, std::uint64_t bytes) {
    std::byte* const from = at_peer(there);
    bytes_ += bytes;
    if (count_ > 0 && ends_at(here_[count_], here) && ends_at(there_[count_], from)) {
      here_[count_].iov_len += bytes;
      there_[count_].iov_len += bytes;
      return;
    }
    ++count_;
    here_[count_] = {here, static_cast<std::size_t>(bytes)};
    there_[count_] = {from, static_cast<std::size_t>(bytes)};
  }
  void clear() { bytes_ = count_ = 0; }

  // For the function that makes the system call: both lists have room for one more entry in front
  // of these, and one behind.
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] iovec* here() { return here_.data() + 1; }
  [[nodiscard]] iovec* there() { return there_.data() + 1; }

 private:
  // Compares the addresses as numbers: an address of the peer may be any value, also null or the
  // last address.
  static bool ends_at(const iovec& part, const std::byte* next) {
    return std::bit_cast<std::uintptr_t>(part.iov_base) + part.iov_len == std::bit_cast<std::uintptr_t>(next);
  }

  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
  std::array<iovec, limits::kFetchBlocks + 2> here_;
  std::array<iovec, limits::kFetchBlocks + 2> there_;
};

// The peer's memory as one connection reaches it, beside the wire. Thread: the loop.
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
  virtual Reach reach(const RemoteRegion& region) = 0;

  // How a fetch or a store ended. Except after kDone, only some of the bytes may have been copied.
  enum class Outcome {
    kDone,
    kFault,   // an address on one of the sides is not mapped, or the kernel cannot read its memory
    kDenied,  // the kernel does not permit the copy (any more)
    kGone,    // the peer's process, or its side of the connection, has ended
  };
  // Reads from the peer's memory, at addresses that the peer has sent. kDone: the peer's connection
  // was still open when the last byte had come, so the peer had not given back memory that its
  // operations name.
  virtual Outcome fetch(PeerBlocks& list) = 0;
  // Writes to the peer's memory, through a window that is held for the write. Returns kGone also if
  // the owner has revoked the region.
  virtual Outcome store(PeerBlocks& list, const PeerWindow& window) = 0;
  // What both sides found out when they connected: whether this side can read the peer's memory,
  // and the peer memory of this side.
  enum class Known { kNo, kYes, kOpen };
  [[nodiscard]] virtual bool fetches() const = 0;
  [[nodiscard]] virtual Known peer_fetches() = 0;  // kOpen: WireHandler::on_peer_memory() follows
  // From now on no fetch of the peer counts: memory that its fetches name may be given back.
  virtual void withdraw() = 0;

 protected:
  ~PeerMemory() = default;
};

}  // namespace slime::transport
