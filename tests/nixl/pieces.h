#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/e2e/pattern.h"
#include "tests/nixl/host.h"
#include "tests/support/settings.h"

// Bytes and descriptors that the tests of the plugin share.
namespace slime::test::nixl {

// The seed of a test: $SLIME_TEST_SEED, or a fixed one. Printed.
inline std::uint64_t seed_of_test() {
  const auto seed = static_cast<std::uint64_t>(setting("SLIME_TEST_SEED", 20260101));
  MESSAGE("SLIME_TEST_SEED=", seed);
  return seed;
}

// Cuts two memories of one length into descriptors of random lengths up to `most` bytes, some of
// them empty, and gives the remote parts another order than the local ones. Every byte is in one
// descriptor.
inline std::vector<Piece> random_pieces(Rng& rng, const Memory& local, std::uintptr_t remote,
                                        std::size_t most) {
  std::vector<std::size_t> lengths;
  for (std::size_t left = local.bytes.size(); left > 0;) {
    const std::size_t length = std::min<std::size_t>(left, rng.below(most + 1));
    lengths.push_back(length);
    left -= length;
  }
  std::vector<Piece> out(lengths.size());
  std::vector<std::size_t> order(lengths.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto shuffle = [&rng](auto& list) {
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[rng.below(i)]);
  };
  shuffle(order);
  std::uintptr_t at = local.address();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    out[i] = {at, 0, lengths[i]};
    at += lengths[i];
  }
  for (const std::size_t i : order) {
    out[i].remote = remote;
    remote += lengths[i];
  }
  shuffle(out);
  return out;
}

// True if each descriptor has the same bytes at both ends, which are memory of this process.
inline bool same_bytes(const std::vector<Piece>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    const auto* const local = reinterpret_cast<const std::byte*>(piece.local);    // NOLINT
    const auto* const remote = reinterpret_cast<const std::byte*>(piece.remote);  // NOLINT
    return std::equal(local, local + piece.length_bytes, remote);
  });
}

}  // namespace slime::test::nixl
