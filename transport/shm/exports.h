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

// Words that the owner of memory and the peer that maps it write for each other; one page for each
// direction, beside the rings. The owner trusts the peer's words only to say that the peer may be
// copying. The peer trusts the owner's only to say that it must not copy.
struct ExportPage {
  static constexpr std::size_t kApart = 128;

  // written by the peer: the ticket under which it copies
  alignas(kApart) std::atomic<std::uint64_t> in_use{0};
  // written by the owner: tickets
  alignas(kApart) std::array<std::atomic<std::uint64_t>, limits::kExports> shown{};
  // Written by the peer before each call that writes by address: the thread's id above a number.
  alignas(kApart) std::atomic<std::uint64_t> writing{0};
  // Written by the owner: the gates of the first slots (gate.h). 0: no gate, also from an owner
  // without gates.
  alignas(kApart) std::array<std::atomic<std::uint64_t>, limits::kGatedExports> gates{};
};
inline constexpr std::size_t kExportPageBytes = 4096;
static_assert(sizeof(ExportPage) <= kExportPageBytes && std::atomic<std::uint64_t>::is_always_lock_free);

// The memory that both sides of one connection have mapped, for as long as any object needs it, and
// the local socket, whose end shows that the peer has ended. Thread: any.
struct Attachment {
  SharedMemory memory;
  UniqueFd socket;
  int peer = 0;  // id of the peer's process, if it may write memory by address; else 0
};

// The regions of this side that one peer has been told about. Thread: the loop.
class Exports {
 public:
  // `page` lies in the attachment's memory.
  Exports(std::shared_ptr<Attachment> attachment, ExportPage& page);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;
  ~Exports();  // take_back()

  // Returns the answer to a request, and in `memory` the descriptor that goes with it if its code
  // is 0.
  WindowReply answer(const WindowRequest& request, Lender& lender, UniqueFd& descriptor);
  // Returns an answer that refuses the request, and takes back what an earlier answer to it has
  // shown.
  WindowReply refuse(const WindowRequest& request, Code code);
  // Revokes all exports. Returns the loan under which the peer may still be inside a copy; there is
  // at most one. Null: none.
  std::shared_ptr<const Loan> take_back();

 private:
  class Export;

  const std::shared_ptr<Attachment> attachment_;
  ExportPage& page_;
  // by slot; slots of exports that are over are used again
  std::vector<std::shared_ptr<Export>> exports_;
  Export* newest_ = nullptr;  // of the request that is being answered
  std::uint64_t last_ticket_ = 0;
};

}  // namespace slime::transport::shm
