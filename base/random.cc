#include "base/random.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace slime {

void random_bytes(MutableBytes out) {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    SLIME_CHECK(got > 0);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

Rng::Rng(std::uint64_t seed) {
  // splitmix64 spreads a small seed over the whole state.
  for (auto& word : state_) {
    seed += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    word = z ^ (z >> 31);
  }
}

std::uint64_t Rng::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Rng::below(std::uint64_t bound) {
  SLIME_CHECK(bound > 0);
  // Rejects the short last interval, for uniformity.
  const std::uint64_t threshold = (0 - bound) % bound;
  for (;;) {
    const std::uint64_t value = next();
    if (value >= threshold) return value % bound;
  }
}

void Rng::fill(MutableBytes out) {
  Rng rng = *this;  // a local copy stays in registers
  const std::size_t words = out.size() / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = rng.next();
    std::memcpy(out.data() + i * sizeof word, &word, sizeof word);
  }
  if (const std::size_t rest = out.size() % sizeof(std::uint64_t); rest > 0) {
    const std::uint64_t word = rng.next();
    std::memcpy(out.data() + words * sizeof word, &word, rest);
  }
  *this = rng;
}

}  // namespace slime
