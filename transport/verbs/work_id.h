#pragma once

#include <cstdint>

#include "transport/verbs/parameters.h"

namespace slime::transport::verbs {

// Names a work request by its endpoint, its queue pair, and its place in that pair's send queue.
// The completion of an endpoint that has ended never matches another endpoint.
struct WorkId {
  std::uint32_t index = 0;       // of the endpoint; 20 bits
  std::uint32_t generation = 0;  // the lower 15 bits of the handle's generation
  std::uint32_t queue_pair = 0;  // 4 bits
  std::uint32_t place = 0;       // 24 bits

  [[nodiscard]] std::uint64_t pack() const;
  static WorkId unpack(std::uint64_t id);
  static constexpr std::uint32_t kGenerationMask = (1U << 15) - 1;
};

inline std::uint64_t WorkId::pack() const {
  return std::uint64_t{generation & kGenerationMask} << 48 | std::uint64_t{index} << 28 |
         std::uint64_t{queue_pair} << 24 | (place & MessageNote::kMask);
}

inline WorkId WorkId::unpack(std::uint64_t id) {
  return {static_cast<std::uint32_t>(id >> 28) & 0xfffff,
          static_cast<std::uint32_t>(id >> 48) & kGenerationMask, static_cast<std::uint32_t>(id >> 24) & 0xf,
          static_cast<std::uint32_t>(id) & MessageNote::kMask};
}

}  // namespace slime::transport::verbs
