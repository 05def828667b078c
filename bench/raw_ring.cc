#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "bench/histogram.h"
#include "bench/raw.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

constexpr std::uint64_t kCacheLine = 64;
constexpr std::uint32_t kOver = 0xFFFFFFFF;  // instead of a number: the other side has ended
constexpr int kSpinsBetweenYields = 10'000;  // on one core the other side must run, too

struct RingSlot {
  std::atomic<std::uint32_t> number;
  std::atomic<std::uint32_t> sleeps;  // nonzero: the other side sleeps until the number changes
  // Returns the bytes of the message, which begin in this line.
  [[nodiscard]] std::byte* bytes() { return reinterpret_cast<std::byte*>(this) + kHeader; }
  static constexpr std::size_t kHeader = 8;
};
static_assert(sizeof(RingSlot) == RingSlot::kHeader && std::atomic<std::uint32_t>::is_always_lock_free);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, nullptr, nullptr, 0);
}

// Waits until the slot holds another number than `old`; returns that number.
std::uint32_t wait_past(RingSlot& slot, std::uint32_t old, bool spin) {
  for (int spins = 0;; ++spins) {
    const std::uint32_t number = slot.number.load(std::memory_order_acquire);
    if (number != old) return number;
    if (!spin) {
      slot.sleeps.store(1);
      if (slot.number.load() == old) futex(slot.number, FUTEX_WAIT, old);
      slot.sleeps.store(0, std::memory_order_relaxed);
    } else if (spins % kSpinsBetweenYields == kSpinsBetweenYields - 1) {
      sched_yield();
    } else {
      relax();
    }
  }
}

void publish(RingSlot& slot, std::uint32_t number, bool spin) {
  if (spin) {
    slot.number.store(number, std::memory_order_release);
    return;
  }
  slot.number.store(number);
  if (slot.sleeps.load() != 0) futex(slot.number, FUTEX_WAKE, 1);
}

// The slots of one direction; the first half of the memory holds the requests.
class Side {
 public:
  Side(const Pages& memory, const RingShape& shape, bool replies)
      : first_(memory.data() + (replies ? shape.memory_bytes() / 2 : 0)), stride_(shape.slot_bytes()) {}
  RingSlot& operator[](std::uint32_t i) const { return *reinterpret_cast<RingSlot*>(first_ + i * stride_); }

 private:
  std::byte* first_;
  std::uint64_t stride_;
};

}  // namespace

std::uint64_t RingShape::slot_bytes() const {
  return (RingSlot::kHeader + size + kCacheLine - 1) / kCacheLine * kCacheLine;
}

void serve_ring(const Pages& memory, const RingShape& shape) {
  const Side requests(memory, shape, false);
  const Side replies(memory, shape, true);
  for (std::uint32_t number = 1;; ++number) {
    for (std::uint32_t i = 0; i < shape.slots; ++i) {
      if (wait_past(requests[i], number - 1, shape.spin) == kOver) return;
      std::memcpy(replies[i].bytes(), requests[i].bytes(), shape.size);
      publish(replies[i], number, shape.spin);
    }
  }
}

Result<RawEcho> ring_echo(const Pages& memory, const RingShape& shape, Nanos span) {
  const Side requests(memory, shape, false);
  const Side replies(memory, shape, true);
  std::vector<std::byte> payload(std::max<std::size_t>(shape.size, 1));  // its address is never null
  Rng(kSeed).fill(payload);
  std::vector<TimePoint> started(shape.slots);
  Histogram latency;
  bool right = true;
  const TimePoint begin = steady_clock().now();
  TimePoint now = begin;
  for (std::uint32_t number = 1; now - begin < span || number == 1; ++number) {
    for (std::uint32_t i = 0; i < shape.slots; ++i) {
      if (number > 1) {
        wait_past(replies[i], number - 2, shape.spin);
        now = steady_clock().now();
        latency.add(static_cast<std::uint64_t>((now - started[i]).count()));
        right = std::memcmp(replies[i].bytes(), payload.data(), shape.size) == 0 && right;
      }
      started[i] = now;
      std::memcpy(requests[i].bytes(), payload.data(), shape.size);
      publish(requests[i], number, shape.spin);
    }
  }
  for (std::uint32_t i = 0; i < shape.slots; ++i) publish(requests[i], kOver, shape.spin);
  if (!right) return Status(Code::kInternal, "the shared memory brought back other bytes than were sent");
  return RawEcho{latency.quantile(0.5) / 1000,
                 static_cast<double>(latency.count()) / std::chrono::duration<double>(now - begin).count()};
}

}  // namespace slime::bench
