#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secret.h"
#include "transport/handshake_frame.h"
#include "transport/mac.h"

namespace slime::transport {

enum class HandshakeRole : std::uint8_t { kInitiator, kAcceptor };

// Makes and checks the MACs of one end of one handshake. A MAC is HMAC-SHA256, keyed with the token
// or a key, over the label of the sender's role, the shared frames and the frame that it proves.
// Shared frames are HELLO, CHALLENGE and AUTH, as far as they were exchanged; after the handshake
// SETUP and ACCEPT too. So the MAC never fits in another handshake (other nonces), nor when our own
// frame is sent back to us (other role), nor when a later proof is passed on from another
// connection (other SETUP and ACCEPT).
class HandshakeProofs {
 public:
  explicit HandshakeProofs(HandshakeRole self) : self_(self) {}

  [[nodiscard]] HandshakeRole role() const { return self_; }
  // Appends a shared frame, whole.
  void add_shared(Bytes frame) { shared_.insert(shared_.end(), frame.begin(), frame.end()); }
  // Returns the MAC that this side appends to its frame `frame`.
  [[nodiscard]] HandshakeMac prove(const Secret& key, Bytes frame) const { return mac(key, self_, frame); }
  // Returns whether `frame` ends with the peer's valid MAC under `key`.
  [[nodiscard]] bool fits(const Secret& key, Bytes frame) const;

 private:
  [[nodiscard]] HandshakeMac mac(const Secret& key, HandshakeRole sender, Bytes frame) const;

  HandshakeRole self_;
  ByteVector shared_;
};

// Body of the frame PROOF. Its sender proves with it, on an open connection, that it has another
// key.
struct KeyProof {
  std::uint64_t key = 0;  // id that nanoctrl gave the key
  // number of this proof among the sender's proofs on the connection: 1, 2, 3, ...
  std::uint64_t number = 0;
};
static_assert(sizeof(KeyProof) == 16);

// Returns the whole frame, with its MAC.
ByteVector encode_key_proof(const HandshakeProofs& proofs, const Secret& key, KeyProof proof);
// Parses a PROOF frame; kCorrupt if it does not parse. Does not check the MAC: see
// HandshakeProofs::fits().
Result<KeyProof> decode_key_proof(Bytes frame);

}  // namespace slime::transport
