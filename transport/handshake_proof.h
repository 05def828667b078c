#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secret.h"
#include "transport/handshake_frame.h"
#include "transport/mac.h"

namespace slime::transport {

enum class HandshakeRole : std::uint8_t { kInitiator, kAcceptor };

// One end of one handshake as its proofs see it. A proof is HMAC-SHA256, keyed with the token or a
// key, over the label of the sender's role, the shared frames and the proved frame. Shared are
// HELLO, CHALLENGE and AUTH, as far as they went; for what follows the handshake SETUP and ACCEPT
// too. So a frame of another handshake never fits (other nonces), nor a frame of ours that is sent
// back to us (other role), nor a later proof that is passed on from another connection (other ends,
// which SETUP and ACCEPT tell).
class HandshakeProofs {
 public:
  explicit HandshakeProofs(HandshakeRole self) : self_(self) {}

  [[nodiscard]] HandshakeRole role() const { return self_; }
  // Appends a shared frame, whole.
  void add_shared(Bytes frame) { shared_.insert(shared_.end(), frame.begin(), frame.end()); }
  // Returns the MAC to append to this frame of ours.
  [[nodiscard]] HandshakeMac prove(const Secret& key, Bytes frame) const { return mac(key, self_, frame); }
  // Returns whether the frame ends with the peer's MAC under this key.
  [[nodiscard]] bool fits(const Secret& key, Bytes frame) const;

 private:
  [[nodiscard]] HandshakeMac mac(const Secret& key, HandshakeRole sender, Bytes frame) const;

  HandshakeRole self_;
  ByteVector shared_;
};

// Body of the frame PROOF, by which its sender proves, on an open connection, that it has one more
// key.
struct KeyProof {
  std::uint64_t key = 0;     // id of the key, which nanoctrl gave it
  std::uint64_t number = 0;  // counts this sender's proofs on this connection: 1, 2, 3, ...
};
static_assert(sizeof(KeyProof) == 16);

// Returns the whole frame, with its MAC.
ByteVector encode_key_proof(const HandshakeProofs& proofs, const Secret& key, KeyProof proof);
// Returns what the frame says. Does not look at the MAC: see HandshakeProofs::fits(). kCorrupt.
Result<KeyProof> decode_key_proof(Bytes frame);

}  // namespace slime::transport
