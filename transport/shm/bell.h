#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/limits.h"
#include "transport/shm/shared_memory.h"

namespace slime::transport::shm {

// A page by which peers tell a port that a connection has something to do, if the port does not
// look at the connection's ring. Each connection has one bit, so that a look at the page costs the
// same for any number of connections. A flag says that the port sleeps and must be woken. All peers
// of the port map the page; the worst that they can do with it is to make the port look once more.
struct BellPage {
  alignas(128) std::atomic<std::uint32_t> sleeping{0};
  alignas(128) std::atomic<std::uint64_t> words_rung{0};  // bit n: look at rung[n]
  alignas(128) std::array<std::atomic<std::uint64_t>, limits::kShmPeers / 64> rung{};
};
inline constexpr std::size_t kBellBytes = 4096;
static_assert(sizeof(BellPage) <= kBellBytes && limits::kShmPeers % 64 == 0 && limits::kShmPeers <= 64 * 64);

// This port's own bell, which its peers ring. Thread: the loop.
class Bell {
 public:
  Status open();
  [[nodiscard]] int page_fd() const { return page_fd_.get(); }
  [[nodiscard]] int event_fd() const { return event_.get(); }

  // Calls fn(number) for each connection that rang.
  template <class F>
  void take(F fn);
  // Call before the loop blocks until event_fd() is readable. Returns false if a peer has rung
  // meanwhile: then the loop must not block.
  bool sleep();
  void wake() { page().sleeping.store(0, std::memory_order_relaxed); }
  // Clears the event.
  void drain();

 private:
  [[nodiscard]] BellPage& page() const { return *reinterpret_cast<BellPage*>(memory_.data()); }

  UniqueFd page_fd_;
  UniqueFd event_;
  SharedMemory memory_;
};

// The bell of the peer's port, rung under the number that the peer gave to this connection. Thread:
// the loop.
class PeerBell {
 public:
  PeerBell() = default;
  // Maps the peer's bell. Returns kCorrupt if the number or the memory cannot be a bell.
  static Result<PeerBell> map(UniqueFd page, UniqueFd event, std::uint32_t number);
  void ring();

 private:
  SharedMemory memory_;
  UniqueFd event_;
  std::uint32_t number_ = 0;
};

template <class F>
void Bell::take(F fn) {
  if (page().words_rung.load(std::memory_order_relaxed) == 0) return;
  std::uint64_t words = page().words_rung.exchange(0, std::memory_order_seq_cst);
  for (; words != 0; words &= words - 1) {
    const auto word = static_cast<std::uint32_t>(std::countr_zero(words));
    if (word >= page().rung.size()) return;  // invalid value from a peer
    std::uint64_t bits = page().rung[word].exchange(0, std::memory_order_seq_cst);
    for (; bits != 0; bits &= bits - 1) fn(word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits)));
  }
}

}  // namespace slime::transport::shm
