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

// A peer of the same host may copy by itself: it maps memory that Slime allocated, and has the kernel read
// and write any other by its address, where the kernel lets it. These are the two sides of that, as the
// software engine sees them; shm/exports.h and shm/windows.h implement them.
//
// A copy and a revocation meet in two words that both processes map: the copier stores its ticket in
// `in_use`, then looks whether the owner still shows it; the owner takes it away, then looks at `in_use`. All
// four are sequentially consistent, so either the copier sees that it must not, or the owner sees that it
// does. Nobody has to wait for a reader of memory that is not mapped: it looks at the first word again when
// it has read, and what came too late does not count. For a writer of such memory the owner waits; one that
// was stopped finds, when it goes on, that the kernel lets none of its bytes pass (shm/gate.h).

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

// What a peer maps, or reads.
struct Lent {
  UniqueFd memory;            // opened with no more rights than the region gives; none: to be read
  std::uint64_t address = 0;  // in this process, of what is to be read
  std::uint64_t length_bytes = 0;
  Rights rights = Rights::kLocal;
};

// Who has regions to show. Thread: any.
class Lender {
 public:
  // From here on the region's revocation reaches the loan. kNotFound, kPermissionDenied; kUnimplemented for
  // memory that the kernel reads for nobody, such as that of a device.
  virtual Result<Lent> lend(Handle region, std::uint64_t key, std::shared_ptr<Loan> loan) = 0;

 protected:
  ~Lender() = default;
};

// How a peer on the same host may reach a region, by its key, so that whoever asks knows what the answer
// brings, and asks for none in vain. kMapped: odd keys; kRead, by its address: multiples of 4; kOnce, not
// worth asking for: the other ones.
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
  std::byte* data = nullptr;       // null: not mapped
  std::uint64_t address = 0;       // of what is not mapped: in the peer
  std::uint64_t length_bytes = 0;  // of what is there: never beyond it, whatever a descriptor says
  std::uint64_t key = 0;
  Rights rights = Rights::kLocal;
  std::uint64_t ticket = 0;
  std::uint64_t gate = 0;  // of what is not mapped, in the peer: what writes have to pass; 0: none may
  std::atomic<std::uint64_t>* in_use = nullptr;
  const std::atomic<std::uint64_t>* shown = nullptr;

  [[nodiscard]] bool covers(const RemoteRegion& region, Rights need, std::uint64_t offset,
                            std::uint64_t length) const {
    return region.access().key == key && allows(rights, need) && in_bounds(offset, length, length_bytes) &&
           (mapped() || need != Rights::kRemoteWrite || gate != 0);
  }
  [[nodiscard]] bool mapped() const { return data != nullptr; }
  // Whether an owner that takes the region away waits for the end of such copies.
  [[nodiscard]] bool waited_for(Rights need) const { return mapped() || need == Rights::kRemoteWrite; }
  // Until end() the owner waits for us, if it does. False: it has taken the region away. `need`: what the
  // copies do there.
  [[nodiscard]] bool begin(Rights need) const {
    if (!waited_for(need)) return shown->load(std::memory_order_seq_cst) == ticket;
    in_use->store(ticket, std::memory_order_seq_cst);
    if (shown->load(std::memory_order_seq_cst) == ticket) return true;
    in_use->store(0, std::memory_order_release);
    return false;
  }
  // False: it was taken away meanwhile, so what was copied may have gone into memory that is the owner's no
  // more, or come from it.
  [[nodiscard]] bool end(Rights need) const {
    // What was copied, then the look. Stores that are still on their way would delay it.
    if (need == Rights::kRemoteRead)
      load_fence();
    else
      full_fence();
    const bool still = shown->load(std::memory_order_seq_cst) == ticket;
    if (waited_for(need)) in_use->store(0, std::memory_order_release);
    return still;
  }
};

// An address of the peer's: for the kernel, never to be followed here.
inline std::byte* at_peer(std::uint64_t address) {
  return std::bit_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

// Blocks that one call of the kernel's reads out of the peer's memory, or writes there.
class PeerBlocks {
 public:
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] bool full() const { return count_ == limits::kFetchBlocks; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Not when it is full.
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

  // For whoever makes the call: on both sides there is room for one more entry in front of these, and behind.
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] iovec* here() { return here_.data() + 1; }
  [[nodiscard]] iovec* there() { return there_.data() + 1; }

 private:
  // As numbers: the peer's may be anything, null and the end of all addresses included.
  static bool ends_at(const iovec& part, const std::byte* next) {
    return std::bit_cast<std::uintptr_t>(part.iov_base) + part.iov_len == std::bit_cast<std::uintptr_t>(next);
  }

  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
  std::array<iovec, limits::kFetchBlocks + 2> here_;
  std::array<iovec, limits::kFetchBlocks + 2> there_;
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
  virtual Reach reach(const RemoteRegion& region) = 0;

  // How it ended. But for kDone, some of the bytes may have come.
  enum class Outcome {
    kDone,
    kFault,   // something is not there, on one of the two sides, or is no memory that the kernel reads
    kDenied,  // the kernel does not let us, any more
    kGone,    // the process, or its side of the connection
  };
  // Reads out of the peer's memory, by addresses that it has told. kDone: the peer's connection stood when
  // the last byte had come, so that nothing which its operations named was given back before.
  virtual Outcome fetch(PeerBlocks& list) = 0;
  // Writes there, through a window that is held for it. kGone also where the owner has taken it away.
  virtual Outcome store(PeerBlocks& list, const PeerWindow& window) = 0;
  // What both sides found out when they connected: whether we read the peer, and whether it reads us.
  enum class Known { kNo, kYes, kOpen };
  [[nodiscard]] virtual bool fetches() const = 0;
  [[nodiscard]] virtual Known peer_fetches() = 0;  // kOpen: WireHandler::on_peer_memory() follows
  // From here on no fetch of the peer counts: what it named may be given back.
  virtual void withdraw() = 0;

 protected:
  ~PeerMemory() = default;
};

}  // namespace slime::transport
