#include "agent/connecting/session_keys.h"

#include <algorithm>

#include "agent/limits.h"
#include "base/str.h"

namespace slime::agent {

Result<SessionKeys::Verdict> SessionKeys::on_proof(Bytes frame, const KeySet& set, TimePoint now) {
  const auto proof = transport::decode_key_proof(frame);
  if (!proof) return proof.error();
  if (proof->number != received_ + 1)
    return Status(Code::kCorrupt,
                  str("its proof of a key is number ", proof->number, ", expected ", received_ + 1));
  ++received_;
  kept_.clear();  // only the last proof matters
  auto verdict = check(frame, set);
  if (!verdict || *verdict == Verdict::kProved) return verdict;
  if (now - window_ >= limits::kProofWindow) {
    window_ = now;
    unknown_ = 0;
  }
  if (++unknown_ > limits::kUnknownProofs)
    return Status(Code::kResourceExhausted,
                  str(unknown_, " proofs under keys that are not known here, within ",
                      std::chrono::duration_cast<std::chrono::seconds>(limits::kProofWindow).count(), " s"));
  kept_.assign(frame.begin(), frame.end());
  return verdict;
}

Status SessionKeys::on_keys(const KeySet& set) {
  if (kept_.empty()) return {};
  const auto verdict = check(kept_, set);
  if (!verdict) return verdict.error();
  if (*verdict == Verdict::kProved) kept_.clear();
  return {};
}

Result<SessionKeys::Verdict> SessionKeys::check(Bytes frame, const KeySet& set) {
  const auto proof = transport::decode_key_proof(frame);
  if (!proof) return proof.error();
  const auto key = std::find_if(set.keys.begin(), set.keys.end(),
                                [&](const ctrl::ScopeKey& one) { return one.id == proof->key; });
  if (key == set.keys.end()) return Verdict::kUnknown;
  if (!proofs_.fits(key->secret, frame))
    return Status(Code::kUnauthenticated, str("its proof of key ", proof->key, " is wrong"));
  proved_ = set.version.revocations;
  prove_by_ = kNever;
  return Verdict::kProved;
}

std::optional<ByteVector> SessionKeys::next_proof(const KeySet& set) {
  if (set.version.changes == told_ || set.keys.empty()) return std::nullopt;
  told_ = set.version.changes;
  const ctrl::ScopeKey& newest = set.keys.back();
  return transport::encode_key_proof(proofs_, newest.secret, {newest.id, ++sent_});
}

TimePoint SessionKeys::prove_by(const KeySet& set, TimePoint now) {
  if (!revoked(set)) {
    prove_by_ = kNever;
  } else if (prove_by_ == kNever) {
    prove_by_ = deadline_after(now, set.grace);
  }
  return prove_by_;
}

}  // namespace slime::agent
