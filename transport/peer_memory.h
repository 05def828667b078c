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

// A process may copy from and to memory of a peer on the same host without the wire. It maps memory
// that Slime allocated. The kernel reads and writes all other memory for it, by its address, if
// that is permitted. This header has both sides as the software engine uses them; shm/exports.h and
// shm/windows.h implement them.
//
// Two words that both processes map decide between a copy and a revocation. The copier stores its
// ticket in `in_use`, then checks that the owner still has the ticket in `shown`. The owner removes
// the ticket from `shown`, then checks `in_use`. All four accesses are sequentially consistent:
// either the copier sees that it must not copy, or the owner sees that a copy is in progress. If
// the memory is not mapped by the copier, the owner does not wait for a reader: the reader checks
// `shown` again after reading, and drops bytes that it read too late. The owner waits for a writer
// of such memory. If the writer was stopped and goes on later, the kernel writes none of its bytes
// (shm/gate.h).

// ---- the owner's side

// Permission of one peer to copy from and to one region without the wire. Thread: any.
class Loan {
 public:
  Loan() = default;
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  virtual ~Loan() = default;
  // Forbids further copies by the peer. Final.
  virtual void revoke() = 0;
  // Call after revoke(). Returns whether the peer may still be inside a copy. Once false, always
  // false. False if the peer's process has ended.
  [[nodiscard]] virtual bool busy() const = 0;
  // Returns true if the loan is revoked and the peer is not inside a copy any more.
  [[nodiscard]] virtual bool over() const = 0;
  // Ends the loan. Call after revoke(), when the region has got other pages: the copies of the peer
  // then reach only the old pages.
  virtual void let_go() = 0;
};

// Result of lend(): a descriptor with which the peer maps the region's memory, or the address at
// which the kernel reads or writes the memory for the peer.
struct Lent {
  // descriptor to map, opened with at most the region's rights; empty: the peer uses the address
  UniqueFd memory;
  std::uint64_t address = 0;  // the region's address in this process, if the peer does not map it
  std::uint64_t length_bytes = 0;
  Rights rights = Rights::kLocal;
};

// Gives peers on the same host access to the regions of this side. Thread: any.
class Lender {
 public:
  // Lends a region to the peer. When the region is revoked later, `loan` is revoked, too. Errors:
  // kNotFound; kPermissionDenied; kUnimplemented for memory that the kernel cannot read for another
  // process, such as that of a device.
  virtual Result<Lent> lend(Handle region, std::uint64_t key, std::shared_ptr<Loan> loan) = 0;

 protected:
  ~Lender() = default;
};

// How a peer on the same host may reach a region without the wire. The low bits of the region's key
// encode this, so that a peer asks only where asking helps. kMapped (odd keys): by mapping it.
// kRead (multiples of 4): by its address. kOnce (other keys): not at all, use the wire.
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

// A region of the peer that this side can copy from or to without the wire: it is mapped here, or
// the kernel reads and writes it by its address.
struct PeerWindow {
  std::byte* data = nullptr;  // null: not mapped
  std::uint64_t address = 0;  // address in the peer's process, if the region is not mapped here
  // length of the region; no copy goes beyond it, even if a RegionDescriptor has another length
  std::uint64_t length_bytes = 0;
  std::uint64_t key = 0;
  Rights rights = Rights::kLocal;
  std::uint64_t ticket = 0;
  // address, in the peer's process, of the gate for writes to memory that is not mapped here
  // (shm/gate.h); 0: such writes are not possible
  std::uint64_t gate = 0;
  std::atomic<std::uint64_t>* in_use = nullptr;
  const std::atomic<std::uint64_t>* shown = nullptr;

  [[nodiscard]] bool covers(const RemoteRegion& region, Rights need, std::uint64_t offset,
                            std::uint64_t length) const {
    return region.access().key == key && allows(rights, need) && in_bounds(offset, length, length_bytes) &&
           (mapped() || need != Rights::kRemoteWrite || gate != 0);
  }
  [[nodiscard]] bool mapped() const { return data != nullptr; }
  // Returns whether an owner that revokes the region waits until copies that need the right `need`
  // have ended.
  [[nodiscard]] bool waited_for(Rights need) const { return mapped() || need == Rights::kRemoteWrite; }
  // Begins copies that need the right `need`; covers() must have returned true for them. Returns
  // false if the owner has revoked the region. If waited_for(need), an owner that revokes the
  // region later waits until end().
  [[nodiscard]] bool begin(Rights need) const {
    if (!waited_for(need)) return shown->load(std::memory_order_seq_cst) == ticket;
    in_use->store(ticket, std::memory_order_seq_cst);
    if (shown->load(std::memory_order_seq_cst) == ticket) return true;
    in_use->store(0, std::memory_order_release);
    return false;
  }
  // Ends copies. Returns false if the owner revoked the region meanwhile: its memory may then have
  // been in use for something else during the copy.
  [[nodiscard]] bool end(Rights need) const {
    // Orders the copy before the load of `shown`. After a read, a load fence is enough: a full
    // fence would also wait for this thread's stores to become visible.
    if (need == Rights::kRemoteRead)
      load_fence();
    else
      full_fence();
    const bool still = shown->load(std::memory_order_seq_cst) == ticket;
    if (waited_for(need)) in_use->store(0, std::memory_order_release);
    return still;
  }
};

// Makes a pointer from an address in the peer's process. The pointer is for system calls only: this
// process must not dereference it.
inline std::byte* at_peer(std::uint64_t address) {
  return std::bit_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

// List of blocks that one system call reads from the peer's memory, or writes to it.
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

  // count(), here() and there() are for the function that makes the system call. Both lists have
  // room for one more entry before the first block, and for one after the last.
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] iovec* here() { return here_.data() + 1; }
  [[nodiscard]] iovec* there() { return there_.data() + 1; }

 private:
  // Returns whether `next` follows `part` directly. Compares the addresses as numbers: an address
  // of the peer may have any value, also null or the last address.
  static bool ends_at(const iovec& part, const std::byte* next) {
    return std::bit_cast<std::uintptr_t>(part.iov_base) + part.iov_len == std::bit_cast<std::uintptr_t>(next);
  }

  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
  std::array<iovec, limits::kFetchBlocks + 2> here_;
  std::array<iovec, limits::kFetchBlocks + 2> there_;
};

// Access of one connection to the peer's memory without the wire. Thread: the loop.
class PeerMemory {
 public:
  enum class Way {
    kDirect,  // copy through `window`, which stays valid until the next event
    kAsked,   // the peer has been asked; WireHandler::on_peer_memory() follows
    kWire,    // not at all
  };
  struct Reach {
    Way way = Way::kWire;
    const PeerWindow* window = nullptr;
  };
  virtual Reach reach(const RemoteRegion& region) = 0;

  // How fetch() or store() ended. After anything but kDone, only a part of the bytes may have been
  // copied.
  enum class Outcome {
    kDone,
    kFault,   // an address on one of the sides is not mapped, or the kernel cannot read its memory
    kDenied,  // the kernel does not permit the copy, or permits it no longer
    kGone,    // the peer's process has ended, or has closed the connection
  };
  // Reads from the peer's memory, at addresses that the peer has sent. kDone also means: the peer
  // had the connection open when the last byte was read, so it had not freed memory that its
  // operations name.
  virtual Outcome fetch(PeerBlocks& list) = 0;
  // Writes to the peer's memory, through a window for which begin() was called. Returns kGone also
  // if the owner has revoked the region.
  virtual Outcome store(PeerBlocks& list, const PeerWindow& window) = 0;
  // fetches(): whether the kernel lets this side read the peer's memory. peer_fetches(): whether it
  // lets the peer read memory of this side. Both sides try it when they connect; kOpen: the peer
  // has not reported its result yet.
  enum class Known { kNo, kYes, kOpen };
  [[nodiscard]] virtual bool fetches() const = 0;
  [[nodiscard]] virtual Known peer_fetches() = 0;  // kOpen: WireHandler::on_peer_memory() follows
  // Makes all later fetches of the peer fail, so that memory that they name may be freed.
  virtual void withdraw() = 0;

 protected:
  ~PeerMemory() = default;
};

}  // namespace slime::transport
