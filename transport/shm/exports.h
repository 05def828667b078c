#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "transport/limits.h"
#include "transport/peer_memory.h"
#include "transport/shm/packet.h"
#include "transport/shm/shared_memory.h"

namespace slime::transport::shm {

// Words that the owner of regions and the peer that copies from them write for each other: one page
// for each direction, in the memory of the rings. From the peer's words the owner only concludes
// that the peer may be copying. From the owner's words the peer only concludes that it must not
// copy.
struct ExportPage {
  static constexpr std::size_t kApart = 128;

  // written by the peer: ticket of the region that it is copying from or to; 0: none
  alignas(kApart) std::atomic<std::uint64_t> in_use{0};
  // written by the owner, by slot: ticket of the region that the peer may use; 0: none
  alignas(kApart) std::array<std::atomic<std::uint64_t>, limits::kExports> shown{};
  // Written by the peer before each system call that writes by address: the thread's id in the high
  // 32 bits, a number of the call in the low ones.
  alignas(kApart) std::atomic<std::uint64_t> writing{0};
  // Written by the owner: addresses of the gates (gate.h) of the first kGatedExports slots. 0: the
  // slot has no gate.
  alignas(kApart) std::array<std::atomic<std::uint64_t>, limits::kGatedExports> gates{};
};
inline constexpr std::size_t kExportPageBytes = 4096;
static_assert(sizeof(ExportPage) <= kExportPageBytes && std::atomic<std::uint64_t>::is_always_lock_free);

// The memory that both sides of one connection map, and the local socket, whose end shows that the
// peer has ended. Shared by all objects that need them. Thread: any.
struct Attachment {
  SharedMemory memory;
  UniqueFd socket;
  int peer = 0;  // id of the peer's process if that process may write memory by address; else 0
};

// The regions of this side that have been lent to one peer. Thread: the loop.
class Exports {
 public:
  // `page` lies in the attachment's memory.
  Exports(std::shared_ptr<Attachment> attachment, ExportPage& page);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;
  ~Exports();  // take_back()

  // Lends the region that `request` names, and returns the answer to send. If the peer is to map
  // the region, sets `descriptor` to the descriptor that goes with the answer.
  WindowReply answer(const WindowRequest& request, Lender& lender, UniqueFd& descriptor);
  // Returns an answer that refuses `request`. Revokes the export that answer() has just made for
  // the same request.
  WindowReply refuse(const WindowRequest& request, Code code);
  // Revokes all exports. Returns the loan under which the peer may still be inside a copy (at most
  // one); null: the peer is inside no copy.
  std::shared_ptr<const Loan> take_back();

 private:
  class Export;

  const std::shared_ptr<Attachment> attachment_;
  ExportPage& page_;
  // exports by slot; the slot of an export that is over is used again
  std::vector<std::shared_ptr<Export>> exports_;
  Export* newest_ = nullptr;  // of the request that is being answered
  std::uint64_t last_ticket_ = 0;
};

}  // namespace slime::transport::shm
