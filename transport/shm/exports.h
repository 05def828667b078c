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

// What the owner of memory tells the peer that maps it, and that peer to it; one for each direction, beside
// the rings. The owner believes nothing of it but that the peer may be copying. The peer believes nothing but
// that it must not.
struct ExportPage {
  static constexpr std::size_t kApart = 128;

  alignas(kApart) std::atomic<std::uint64_t> in_use{0};  // by the peer: the ticket under which it copies
  alignas(kApart) std::array<std::atomic<std::uint64_t>, limits::kExports> shown{};  // by the owner: tickets
  // By the peer, before each call that writes by address: its word, the thread's id above a number.
  alignas(kApart) std::atomic<std::uint64_t> writing{0};
  // By the owner: the gates of the first slots (gate.h). 0: none, as with an owner that knows of no gates.
  alignas(kApart) std::array<std::atomic<std::uint64_t>, limits::kGatedExports> gates{};
};
inline constexpr std::size_t kExportPageBytes = 4096;
static_assert(sizeof(ExportPage) <= kExportPageBytes && std::atomic<std::uint64_t>::is_always_lock_free);

// What both sides of one connection have mapped, for as long as anybody needs it, and the local socket, whose
// end is the end of the peer. Thread: any.
struct Attachment {
  SharedMemory memory;
  UniqueFd socket;
  int peer = 0;  // its process id, if it may write memory by address; 0: it may not
};

// Which regions of ours one peer has been told about. Thread: the loop.
class Exports {
 public:
  // `page` lies in the attachment's memory.
  Exports(std::shared_ptr<Attachment> attachment, ExportPage& page);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;
  ~Exports();  // takes all of them back

  // The answer to a request, and the descriptor that goes with it if its code is 0.
  WindowReply answer(const WindowRequest& request, Lender& lender, UniqueFd& descriptor);
  // The answer that says no; what an answer to it has shown is taken back.
  WindowReply refuse(const WindowRequest& request, Code code);
  // The peer begins no copy any more. The loan under which it may still be inside of one, of which there is
  // one at most; null: none.
  std::shared_ptr<const Loan> take_back();

 private:
  class Export;

  const std::shared_ptr<Attachment> attachment_;
  ExportPage& page_;
  std::vector<std::shared_ptr<Export>> exports_;  // by slot; those that are over make room
  Export* newest_ = nullptr;                      // of the request that is being answered
  std::uint64_t last_ticket_ = 0;
};

}  // namespace slime::transport::shm
