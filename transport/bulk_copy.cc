#include "transport/bulk_copy.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/str.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slime::transport {
namespace {

constexpr int kCaches = 8;  // most caches of one core that the kernel reports

#if defined(__x86_64__)

constexpr std::size_t kLine = 64;
// How far ahead of a copy its lines are prefetched, in lines. The processor's own prefetch stops at
// the end of each page, and does not know where a block begins.
constexpr std::size_t kAhead = 96;
static_assert((kAhead + 2) * kLine <= limits::kColdCopyBytes);

// True while stores of this thread that bypass the caches may not be visible yet.
thread_local bool on_its_way = false;

// Prefetches into the first cache alone, because the lines are used once.
void ask_for(const std::byte* address) { _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_NTA); }

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

// Copies whole lines; `to` is at the beginning of a line. Prefetches lines from `ask` on, which
// need not exist.
__attribute__((target("avx2"))) void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes,
                                                  const std::byte* ask) {
  for (; bytes > 0; to += kLine, from += kLine, ask += kLine, bytes -= kLine) {
    ask_for(ask);
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + 1);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to) + 1, high);
  }
}

// Measured between pools of 512 MiB, blocks at random places, against memcpy() of glibc 2.36 on a
// Zen 5: 16 KiB 1.31, 64 KiB 1.21, 1 MiB 1.29. Without asking for the next block's lines 1.17 and
// 1.15; several pages side by side were slower from 64 KiB on.
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes, const std::byte* next) {
  static thread_local const std::byte* asked = nullptr;
  if (asked != from) {
    for (std::size_t line = 0; line < kAhead; ++line) ask_for(from + line * kLine);
  }
  asked = next;
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  const std::size_t tail = (bytes - head) % kLine;
  const std::size_t lines = bytes - head - tail;
  const std::size_t first = lines - kAhead * kLine;
  std::memcpy(to, from, head);
  to += head;
  from += head;
  stream_lines(to, from, first, from + kAhead * kLine);
  stream_lines(to + first, from + first, lines - first, next != nullptr ? next : from + lines);
  std::memcpy(to + lines, from + lines, tail);
  on_its_way = true;
}

#endif

// At about the size of the second cache, the C library changes from the processor's own way of
// copying to one that is slower while the last cache holds the bytes: 31 instead of 43 GB/s on a
// Zen 5.
constexpr std::size_t kHotPiece = 256 * 1024;

void copy_hot(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (; bytes > kHotPiece; to += kHotPiece, from += kHotPiece, bytes -= kHotPiece)
    std::memcpy(to, from, kHotPiece);
  std::memcpy(to, from, bytes);
}

// The share of the last cache that a thread may count on: others use the rest, above all the
// process that reads the copied bytes. Measured on a Zen 5 with 32 MiB, copying one block again and
// again: 16 MiB, which just fits together with its copy: 20 GB/s through the caches, 26 past them;
// 8 MiB: 29 to 39, and 27; 10 MiB: equal.
constexpr std::size_t kCacheParts = 8;
constexpr std::size_t kOurParts = 5;

// Mixes twice, so that blocks at regular distances do not meet in few places.
std::uint64_t hash_of(std::uint64_t piece) {
  piece *= 0x9e3779b97f4a7c15U;
  piece ^= piece >> 32;
  return piece * 0x9e3779b97f4a7c15U;
}

}  // namespace

void bulk_copy_cold(void* to, const void* from, std::size_t bytes, [[maybe_unused]] const void* next) {
#if defined(__x86_64__)
  if (bytes >= limits::kColdCopyBytes && has_avx2())
    return copy_past_caches(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes,
                            static_cast<const std::byte*>(next));
#endif
  std::memcpy(to, from, bytes);
}

void bulk_copy_end() {
#if defined(__x86_64__)
  if (std::exchange(on_its_way, false)) _mm_sfence();
#endif
}

std::size_t last_level_cache_bytes() {
  static const std::size_t bytes = [] {
    // Takes the part that one core reaches: sysconf() may report the sum over all parts of a
    // socket.
    std::size_t most = 0;
    for (int index = 0; index < kCaches; ++index) {
      std::ifstream file(str("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
      std::size_t kib = 0;
      char unit = 0;
      if (file >> kib >> unit && unit == 'K') most = std::max(most, kib * 1024);
    }
    if (most > 0) return most;
    const long told = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    return told > 0 ? static_cast<std::size_t>(told) : limits::kUsualCacheBytes;
  }();
  return bytes;
}

void WorkingSet::touch(const void* begin, std::size_t bytes) {
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(begin) >> kPieceBits;
  const std::uintptr_t last = (reinterpret_cast<std::uintptr_t>(begin) + bytes - 1) >> kPieceBits;
  for (std::uintptr_t piece = first; piece <= last; ++piece) {
    std::uint32_t& seen = seen_[hash_of(piece) >> (64 - kPlaceBits)];
    if (seen == epoch_) continue;
    seen = epoch_;
    ++distinct_;
  }
}

bool WorkingSet::note(const void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return cold_;
  touch(to, bytes);
  touch(from, bytes);
  moved_ += bytes;
  if (moved_ >= cache_bytes_) {
    // Every byte that was moved has been in the cache twice, as source and as target.
    cold_ = distinct_ << kPieceBits > cache_bytes_ / kCacheParts * kOurParts;
    moved_ = 0;
    distinct_ = 0;
    ++epoch_;
  }
  return cold_;
}

void bulk_copy_long(void* to, const void* from, std::size_t bytes, const void* next) {
  static thread_local WorkingSet lately(last_level_cache_bytes());
  if (lately.note(to, from, bytes)) return bulk_copy_cold(to, from, bytes, next);
  copy_hot(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
}

}  // namespace slime::transport
