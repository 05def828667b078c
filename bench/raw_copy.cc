#include "bench/raw_copy.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "bench/shared.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slime::bench {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
// pages that are copied in turns: a core has no more loads in flight
constexpr std::size_t kLanes = 4;
constexpr std::size_t kAhead = 8 * kLine;
constexpr std::size_t kBytesBetweenClocks = 64 << 10;

#if defined(__x86_64__)

// Copies one line, past the cache. Both ends are aligned to a line.
void stream_line_sse2(std::byte* to, const std::byte* from) {
  for (std::size_t i = 0; i < kLine; i += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
}

[[gnu::target("avx512f")]] void stream_line_avx512(std::byte* to, const std::byte* from) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_load_si512(from));
}

// [[gnu::flatten]] inlines the line's function into a function with its instruction set.
[[gnu::flatten]] void stream_sse2(std::byte* to, const std::byte* from, std::size_t size) {
  for (std::size_t at = 0; at < size; at += kLine) stream_line_sse2(to + at, from + at);
}

[[gnu::flatten, gnu::target("avx512f")]] void stream_avx512(std::byte* to, const std::byte* from,
                                                            std::size_t size) {
  for (std::size_t at = 0; at < size; at += kLine) stream_line_avx512(to + at, from + at);
}

[[gnu::flatten]] void interleave_sse2(std::byte* to, const std::byte* from, std::size_t size) {
  for (std::size_t group = 0; group < size; group += kLanes * kPage) {
    for (std::size_t at = group; at < group + kPage; at += kLine) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const std::size_t line = at + lane * kPage;
        _mm_prefetch(reinterpret_cast<const char*>(from + line + kAhead), _MM_HINT_NTA);
        stream_line_sse2(to + line, from + line);
      }
    }
  }
}

[[gnu::flatten, gnu::target("avx512f")]] void interleave_avx512(std::byte* to, const std::byte* from,
                                                                std::size_t size) {
  for (std::size_t group = 0; group < size; group += kLanes * kPage) {
    for (std::size_t at = group; at < group + kPage; at += kLine) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const std::size_t line = at + lane * kPage;
        _mm_prefetch(reinterpret_cast<const char*>(from + line + kAhead), _MM_HINT_NTA);
        stream_line_avx512(to + line, from + line);
      }
    }
  }
}

void copy_streaming(std::byte* to, const std::byte* from, std::size_t size, bool interleaved) {
  static const bool wide = __builtin_cpu_supports("avx512f") != 0;
  if (wide) {
    interleaved ? interleave_avx512(to, from, size) : stream_avx512(to, from, size);
  } else {
    interleaved ? interleave_sse2(to, from, size) : stream_sse2(to, from, size);
  }
  _mm_sfence();
}

constexpr bool kStreams = true;

#else

void copy_streaming(std::byte*, const std::byte*, std::size_t, bool) {}
constexpr bool kStreams = false;

#endif

void copy_block(std::byte* to, const std::byte* from, std::size_t size, CopyWay way) {
  if (way == CopyWay::kGlibc) {
    std::memcpy(to, from, size);
    asm volatile("" : : "r"(to) : "memory");  // keeps the compiler from removing the copy
  } else {
    copy_streaming(to, from, size, way == CopyWay::kInterleaved);
  }
}

double gb_per_s(std::uint64_t bytes, Nanos spent) {
  return static_cast<double>(bytes) / static_cast<double>(spent.count());
}

std::vector<std::uint64_t> shuffled(std::uint64_t count, Rng& rng) {
  std::vector<std::uint64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  for (std::uint64_t i = count; i > 1; --i) std::swap(out[i - 1], out[rng.below(i)]);
  return out;
}

}  // namespace

std::vector<Block> block_list(const Options& options) {
  std::vector<Block> out;
  if (!options.cold) {
    const std::uint64_t stride = options.size * (options.scattered() ? 2 : 1);
    for (std::uint64_t i = 0; i < std::uint64_t{options.inflight} * options.count; ++i) {
      out.push_back({i * stride, i * stride});
    }
    return out;
  }
  Rng rng(kSeed);
  const std::uint64_t all = options.pool_bytes / options.size;
  const auto local = shuffled(all, rng);
  const auto remote = shuffled(all, rng);
  for (std::uint64_t i = 0; i < all / options.count * options.count; ++i) {
    out.push_back({local[i] * options.size, remote[i] * options.size});
  }
  return out;
}

bool can_copy(CopyWay way, std::size_t size) {
  if (way == CopyWay::kGlibc) return true;
  return kStreams && size % (way == CopyWay::kInterleaved ? kLanes * kPage : kLine) == 0;
}

double copy_speed(const CopyList& list, std::byte* local, std::byte* remote, CopyWay way, Nanos span) {
  const std::size_t blocks_between_clocks = std::max<std::size_t>(1, kBytesBetweenClocks / list.size);
  std::size_t next = 0;
  std::uint64_t total = 0;
  const TimePoint begin = steady_clock().now();
  TimePoint now = begin;
  while (now - begin < span) {
    for (std::size_t i = 0; i < blocks_between_clocks; ++i) {
      const Block& block = list.blocks[next];
      std::byte* const here = local + block.local;
      std::byte* const there = remote + block.remote;
      list.to_remote ? copy_block(there, here, list.size, way) : copy_block(here, there, list.size, way);
      if (++next == list.blocks.size()) next = 0;
    }
    total += blocks_between_clocks * list.size;
    now = steady_clock().now();
  }
  return gb_per_s(total, now - begin);
}

Result<double> process_vm_speed(const CopyList& list, std::byte* local, pid_t pid, std::uintptr_t remote,
                                std::size_t batch, Nanos span) {
  batch = std::min<std::size_t>({batch, list.blocks.size(), IOV_MAX});
  std::vector<iovec> here(batch);
  std::vector<iovec> there(batch);
  std::size_t next = 0;
  std::uint64_t total = 0;
  const TimePoint begin = steady_clock().now();
  TimePoint now = begin;
  while (now - begin < span) {
    for (std::size_t i = 0; i < batch; ++i) {
      const Block& block = list.blocks[next];
      here[i] = {local + block.local, list.size};
      there[i] = {reinterpret_cast<void*>(remote + block.remote), list.size};  // NOLINT: not our address
      if (++next == list.blocks.size()) next = 0;
    }
    const auto call = list.to_remote ? process_vm_writev : process_vm_readv;
    const ssize_t moved = call(pid, here.data(), batch, there.data(), batch, 0);
    if (moved != static_cast<ssize_t>(batch * list.size)) {
      return moved < 0 ? from_errno("process_vm", errno)
                       : Status(Code::kInternal, "process_vm moved a part of a batch");
    }
    total += batch * list.size;
    now = steady_clock().now();
  }
  return gb_per_s(total, now - begin);
}

}  // namespace slime::bench
