#include "transport/shm/bell.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <new>

namespace slime::transport::shm {

Status Bell::open() {
  auto memory = SharedMemory::create(kBellBytes, page_fd_);
  if (!memory) return std::move(memory).error();
  memory_ = std::move(*memory);
  new (memory_.data()) BellPage();
  event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_.valid()) return from_errno("eventfd", errno);
  return {};
}

bool Bell::sleep() {
  page().sleeping.store(1, std::memory_order_seq_cst);
  if (page().words_rung.load(std::memory_order_seq_cst) == 0) return true;
  wake();
  return false;
}

void Bell::drain() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof count);
}

Result<PeerBell> PeerBell::map(UniqueFd page, UniqueFd event, std::uint32_t number) {
  if (number >= limits::kShmPeers) return Status(Code::kCorrupt, "the number of a bell that nobody has");
  auto memory = SharedMemory::map(page.get(), kBellBytes);
  if (!memory) return std::move(memory).error();
  PeerBell out;
  out.memory_ = std::move(*memory);
  out.event_ = std::move(event);
  out.number_ = number;
  return out;
}

// Sets the bits first, then checks whether the port sleeps. A port that goes to sleep first says
// so, then checks the bits: so a ring is never missed.
void PeerBell::ring() {
  BellPage& page = *reinterpret_cast<BellPage*>(memory_.data());
  page.rung[number_ / 64].fetch_or(std::uint64_t{1} << (number_ % 64), std::memory_order_seq_cst);
  page.words_rung.fetch_or(std::uint64_t{1} << (number_ / 64), std::memory_order_seq_cst);
  if (page.sleeping.load(std::memory_order_seq_cst) == 0 ||
      page.sleeping.exchange(0, std::memory_order_seq_cst) == 0)
    return;
  const std::uint64_t one = 1;
  // Ignores errors: a full counter means that a wake-up is pending already, and any other failure
  // means that the peer broke its own descriptor.
  [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof one);
}

}  // namespace slime::transport::shm
