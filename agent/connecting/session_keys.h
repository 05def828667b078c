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
    kProved,  // the peer proved a key of the set
    // the proof's key is not in the set: the proof is kept, and the caller must ask for newer keys
    kUnknown,
  };
  // Checks a proof that the peer sent. Each error ends the connection: kCorrupt (not a proof, or
  // out of order), kUnauthenticated (wrong MAC), kResourceExhausted (too many proofs under keys
  // that are not in the set).
  Result<Verdict> on_proof(Bytes frame, const KeySet& set, TimePoint now);
  // Checks the kept proof, if any, against a changed set. Errors: as on_proof().
  Status on_keys(const KeySet& set);
  // Returns a proof of the newest key, to send to the peer; nullopt if the peer has had it, or if
  // the set is empty.
  std::optional<ByteVector> next_proof(const KeySet& set);

  // Returns whether every key that the peer has proved was revoked.
  [[nodiscard]] bool revoked(const KeySet& set) const { return proved_ < set.version.revocations; }
  // Returns whether the peer's last proof is kept because its key is not in the set yet.
  [[nodiscard]] bool awaits_key() const { return !kept_.empty(); }
  // If revoked(), returns the time by which the peer must prove a key of the set; the first call
  // sets that time. Otherwise clears it and returns kNever.
  TimePoint prove_by(const KeySet& set, TimePoint now);

 private:
  Result<Verdict> check(Bytes frame, const KeySet& set);

  const transport::HandshakeProofs proofs_;
  std::uint64_t told_;  // KeySetVersion::changes of the set of which this side last proved a key
  // KeySetVersion::revocations of the set at the last accepted proof of the peer
  std::uint64_t proved_;
  std::uint64_t sent_ = 0;       // proofs
  std::uint64_t received_ = 0;   // proofs
  ByteVector kept_;              // the peer's last proof, while its key is not in the set
  TimePoint prove_by_ = kNever;  // while revoked()
  TimePoint window_{};           // start of the window in which unknown proofs are counted
  std::uint32_t unknown_ = 0;
};

}  // namespace slime::agent
