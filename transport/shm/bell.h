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

// Memory by which a port learns of connections that it does not look at. One bit for each of them,
// so that a look costs the same whatever their number; and a flag that says whether the port must
// be woken. All peers of the port map this page: what they write there only makes the port look
// once more.
struct BellPage {
  alignas(128) std::atomic<std::uint32_t> sleeping{0};
  alignas(128) std::atomic<std::uint64_t> words_rung{0};  // bit n: look at rung[n]
  alignas(128) std::array<std::atomic<std::uint64_t>, limits::kShmPeers / 64> rung{};
};
inline constexpr std::size_t kBellBytes = 4096;
static_assert(sizeof(BellPage) <= kBellBytes && limits::kShmPeers % 64 == 0 && limits::kShmPeers <= 64 * 64);

// The bell of a port itself. Thread: the loop.
class Bell {
 public:
  Status open();
  [[nodiscard]] int page_fd() const { return page_fd_.get(); }
  [[nodiscard]] int event_fd() const { return event_.get(); }

  // Calls fn(number) for each connection that rang.
  template <class F>
  void take(F fn);
  // Call before the loop blocks until event_fd() is readable. Returns false if a peer rang
  // meanwhile.
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

// The bell of a peer, with our number there. Thread: the loop.
class PeerBell {
 public:
  PeerBell() = default;
  // Returns kCorrupt if the descriptors are not a bell.
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
