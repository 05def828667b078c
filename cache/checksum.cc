#include "cache/checksum.h"

#include <xxhash.h>

#include "base/check.h"

namespace slime::cache {

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Checksum::Checksum() : state_(XXH3_createState()) { SLIME_CHECK(state_ != nullptr); }

void Checksum::start(std::string_view space, std::string_view key, std::uint64_t version) {
  const std::uint64_t in_space = XXH3_64bits_withSeed(space.data(), space.size(), version);
  const std::uint64_t seed = XXH3_64bits_withSeed(key.data(), key.size(), in_space);
  SLIME_CHECK(XXH3_64bits_reset_withSeed(state_.get(), seed) == XXH_OK);
}

void Checksum::update(Bytes bytes) {
  if (bytes.empty()) return;  // an empty span may have no address
  SLIME_CHECK(XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()) == XXH_OK);
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

std::uint64_t checksum(std::string_view space, std::string_view key, std::uint64_t version, Bytes bytes) {
  Checksum sum;
  sum.start(space, key, version);
  sum.update(bytes);
  return sum.value();
}

}  // namespace slime::cache
