#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "transport/verbs/regions.h"

namespace slime::transport::testing {

// What a region on verbs tells its peers.
struct VerbsKeys {
  std::uint64_t base;
  std::vector<std::uint64_t> keys;  // of each part
};
inline VerbsKeys verbs_keys(const RegionDescriptor& region) {
  const auto access = verbs::unpack_keys(region.key, region.length_bytes);
  SLIME_CHECK(access.has_value());
  return {access->base, access->keys ? *access->keys : std::vector<std::uint64_t>{access->key}};
}

}  // namespace slime::transport::testing
