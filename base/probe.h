#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace slime {

// The liveness probe: any process may ask an agent's listener whether it is a given instance, and
// learns only yes or no. nanoctrl asks before it gives a name to another process. The client sends
// a ProbeRequest; the listener answers with one ProbeReply and closes.
inline constexpr std::array<char, 4> kProbeMagic = {'S', 'L', 'P', '1'};

struct ProbeRequest {
  std::array<char, 4> magic = kProbeMagic;
  std::array<std::byte, 16> instance{};
};
static_assert(sizeof(ProbeRequest) == 20);

struct ProbeReply {
  std::array<char, 4> magic = kProbeMagic;
  std::uint8_t same = 0;  // 1: this listener belongs to that instance
};
static_assert(sizeof(ProbeReply) == 5);

}  // namespace slime
