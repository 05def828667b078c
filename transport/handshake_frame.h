#pragma once

#include <array>
#include <cstdint>

namespace slime::transport {

inline constexpr std::array<char, 4> kHandshakeMagic = {'S', 'L', 'H', 'S'};
inline constexpr std::uint8_t kHandshakeVersion = 3;

enum class HandshakeFrame : std::uint8_t {
  kHello = 1,
  kChallenge = 2,
  kAuth = 3,
  kAccept = 4,
  kRefuse = 5,
  kSetup = 6,
  kProof = 7,  // on the connection, after the handshake: transport/handshake_proof.h
};

// The header in front of every frame. This struct, and the layout of REFUSE, are equal in all
// versions.
struct HandshakeHeader {
  std::array<char, 4> magic = kHandshakeMagic;
  HandshakeFrame type{};
  std::uint8_t version = kHandshakeVersion;
  std::uint16_t body_bytes = 0;
};
static_assert(sizeof(HandshakeHeader) == 8);

}  // namespace slime::transport
