#pragma once

#include <cstdint>
#include <optional>

#include "agent/registry/keyring.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "transport/connect.h"

namespace slime::agent {

// Remembers, for one connection, which of the scope's keys each end has proved to the other, in the
// handshake and later. No I/O, no clock, no thread. The frames are those of
// transport/handshake_proof.h.
class SessionKeys {
 public:
  SessionKeys(transport::HandshakeProofs proofs, transport::KeySetVersion made_under)
      : proofs_(std::move(proofs)), told_(made_under.changes), proved_(made_under.revocations) {}

  enum class Verdict : std::uint8_t {
    kProved,  // the peer has a key of the set
    // the set has no such key yet: the proof is kept, and the caller must ask for newer keys
    kUnknown,
  };
  // The peer sent a proof. An error ends the connection: kCorrupt (not a proof, or not the next
  // one), kUnauthenticated (wrong MAC), kResourceExhausted (too many under keys that are not in the
  // set).
  Result<Verdict> on_proof(Bytes frame, const KeySet& set, TimePoint now);
  // The set has changed: checks the kept proof. Errors as above.
  Status on_keys(const KeySet& set);
  // Returns a proof of the newest key, to send to the peer; nothing if the peer has had it.
  std::optional<ByteVector> next_proof(const KeySet& set);

  // Returns whether every key that the peer has proved was revoked.
  [[nodiscard]] bool revoked(const KeySet& set) const { return proved_ < set.version.revocations; }
  // Returns whether the peer's last proof is of a key that was not in the set.
  [[nodiscard]] bool awaits_key() const { return !kept_.empty(); }
  // Starts the peer's time to prove a key of the set if revoked() and not started yet; stops it if
  // not revoked(). Returns the end of that time; kNever: none.
  TimePoint prove_by(const KeySet& set, TimePoint now);

 private:
  Result<Verdict> check(Bytes frame, const KeySet& set);

  const transport::HandshakeProofs proofs_;
  std::uint64_t told_;  // KeySetVersion::changes of the last key that this side has proved
  // KeySetVersion::revocations of the set with the last key that the peer has proved
  std::uint64_t proved_;
  std::uint64_t sent_ = 0;       // proofs
  std::uint64_t received_ = 0;   // proofs
  ByteVector kept_;              // the last proof, while its key is not in the set
  TimePoint prove_by_ = kNever;  // while revoked()
  TimePoint window_{};           // start of the window in which unknown proofs are counted
  std::uint32_t unknown_ = 0;
};

}  // namespace slime::agent
