#include "transport/handshake_proof.h"

#include <openssl/crypto.h>

#include <string_view>
#include <type_traits>

namespace slime::transport {
namespace {

constexpr std::string_view kInitiatorLabel = "slime handshake 3 initiator";
constexpr std::string_view kAcceptorLabel = "slime handshake 3 acceptor";
constexpr std::size_t kProofBytes = sizeof(HandshakeMac);

static_assert(std::has_unique_object_representations_v<KeyProof>);

HandshakeHeader proof_header() {
  HandshakeHeader header;
  header.type = HandshakeFrame::kProof;
  header.body_bytes = sizeof(KeyProof) + kProofBytes;
  return header;
}

}  // namespace

bool HandshakeProofs::fits(const Secret& key, Bytes frame) const {
  // the MAC must lie behind the header
  if (frame.size() < sizeof(HandshakeHeader) + kProofBytes) return false;
  const HandshakeRole peer =
      self_ == HandshakeRole::kInitiator ? HandshakeRole::kAcceptor : HandshakeRole::kInitiator;
  const HandshakeMac right = mac(key, peer, frame.first(frame.size() - kProofBytes));
  return CRYPTO_memcmp(right.data(), frame.last(kProofBytes).data(), kProofBytes) == 0;
}

HandshakeMac HandshakeProofs::mac(const Secret& key, HandshakeRole sender, Bytes frame) const {
  ByteVector text;
  ByteWriter writer(text);
  writer.append(as_bytes(sender == HandshakeRole::kInitiator ? kInitiatorLabel : kAcceptorLabel));
  writer.append(shared_);
  writer.append(frame);
  return hmac_sha256(key, text);
}

ByteVector encode_key_proof(const HandshakeProofs& proofs, const Secret& key, KeyProof proof) {
  ByteVector frame;
  ByteWriter writer(frame);
  writer.write(proof_header());
  writer.write(proof);
  writer.append(proofs.prove(key, frame));
  return frame;
}

Result<KeyProof> decode_key_proof(Bytes frame) {
  ByteReader reader(frame);
  const auto header = reader.read<HandshakeHeader>();
  const auto proof = reader.read<KeyProof>();
  reader.take(kProofBytes);
  const HandshakeHeader right = proof_header();
  if (!reader.complete() || header.magic != right.magic || header.type != right.type ||
      header.version != right.version || header.body_bytes != right.body_bytes)
    return Status(Code::kCorrupt, "its proof of a key does not parse");
  return proof;
}

}  // namespace slime::transport
