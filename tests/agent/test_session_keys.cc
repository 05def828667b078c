// What two ends of a connection prove of the scope's keys to each other, without a connection.
#include <doctest/doctest.h>

#include <initializer_list>

#include "agent/connecting/session_keys.h"
#include "agent/limits.h"

namespace slime::agent::session_keys_test {
namespace {

using transport::HandshakeProofs;
using transport::HandshakeRole;
using Verdict = SessionKeys::Verdict;

ctrl::ScopeKey key(std::uint64_t id) { return {id, Secret(ByteVector(32, static_cast<std::byte>(id))), id}; }

HandshakeProofs proofs_of(HandshakeRole role, std::uint8_t handshake = 1) {
  HandshakeProofs out(role);
  out.add_shared(ByteVector(100, std::byte{handshake}));
  return out;
}

// A keyring that is told the keys of these ids, one set after the other.
KeySet after(std::initializer_list<std::initializer_list<std::uint64_t>> sets) {
  Keyring keyring;
  for (const auto& ids : sets) {
    ctrl::ScopeKeys keys;
    for (const std::uint64_t id : ids) keys.push_back(key(id));
    keyring.begin(keys, std::chrono::seconds(5));
  }
  return keyring.set();
}

// Both ends of a connection that was made under the keys 1 to 3.
struct Ends {
  const KeySet before = after({{1, 2, 3}});
  SessionKeys a{proofs_of(HandshakeRole::kInitiator), before.version};
  SessionKeys b{proofs_of(HandshakeRole::kAcceptor), before.version};
};

const TimePoint kNow{std::chrono::hours(1)};

Code code_of(const Result<Verdict>& verdict) { return verdict.status().code(); }

ByteVector forged(std::uint64_t id, std::uint64_t number, HandshakeRole role = HandshakeRole::kInitiator,
                  std::uint8_t handshake = 1) {
  return transport::encode_key_proof(proofs_of(role, handshake), key(id).secret, {id, number});
}

TEST_CASE("a revocation puts the peer in doubt until it proves a key of the new set") {
  Ends ends;
  const KeySet now = after({{1, 2, 3}, {7}});
  CHECK(ends.b.revoked(now));
  CHECK(ends.b.prove_by(now, kNow) == kNow + now.grace);
  CHECK(ends.b.prove_by(now, kNow + std::chrono::seconds(1)) == kNow + now.grace);  // not longer each time
  const auto proof = ends.a.next_proof(now);
  REQUIRE(proof.has_value());
  CHECK_FALSE(ends.a.next_proof(now).has_value());  // one for each set
  const auto verdict = ends.b.on_proof(*proof, now, kNow);
  REQUIRE_MESSAGE(verdict.has_value(), verdict.status().to_string());
  CHECK(*verdict == Verdict::kProved);
  CHECK_FALSE(ends.b.revoked(now));
  CHECK(ends.b.prove_by(now, kNow) == kNever);
}

TEST_CASE("rotations revoke no session, whether the peer proves newer keys or not") {
  Ends ends;
  const KeySet now = after({{1, 2, 3}, {2, 3, 4}, {3, 4, 5}, {4, 5, 6}, {5, 6, 7}});
  CHECK_FALSE(ends.b.revoked(now));
  // What was proved last need not be in the set when all of it is revoked.
  CHECK(ends.b.revoked(after({{1, 2, 3}, {2, 3, 4}, {3, 4, 5}, {4, 5, 6}, {9}})));
}

TEST_CASE("a proof under a key that comes later is kept, and counts once the key is there") {
  Ends ends;
  const auto proof = ends.a.next_proof(after({{1, 2, 3}, {7}}));
  const auto verdict = ends.b.on_proof(*proof, ends.before, kNow);
  REQUIRE(verdict.has_value());
  CHECK(*verdict == Verdict::kUnknown);
  const KeySet other = after({{1, 2, 3}, {8}});
  CHECK(ends.b.on_keys(other).ok());
  CHECK(ends.b.revoked(other));
  const KeySet now = after({{1, 2, 3}, {7}});
  CHECK(ends.b.on_keys(now).ok());
  CHECK_FALSE(ends.b.revoked(now));
}

TEST_CASE("a kept proof that turns out wrong is refused then") {
  Ends ends;
  ByteVector wrong = forged(7, 1);
  wrong.back() ^= std::byte{1};
  REQUIRE(ends.b.on_proof(wrong, ends.before, kNow).has_value());
  CHECK(ends.b.on_keys(after({{1, 2, 3}, {7}})).code() == Code::kUnauthenticated);
}

TEST_CASE("proofs that are wrong, repeated, sent back or of another connection are refused") {
  const KeySet now = after({{1, 2, 3}, {7}});
  const auto refusal = [&now](const ByteVector& proof) {
    Ends ends;
    const Code code = code_of(ends.b.on_proof(proof, now, kNow));
    CHECK(ends.b.revoked(now));
    return code;
  };
  CHECK(code_of(Ends().b.on_proof(forged(7, 1), now, kNow)) == Code::kOk);
  ByteVector flipped = forged(7, 1);
  flipped.back() ^= std::byte{1};
  CHECK(refusal(flipped) == Code::kUnauthenticated);
  CHECK(refusal(forged(7, 1, HandshakeRole::kAcceptor)) == Code::kUnauthenticated);
  CHECK(refusal(forged(7, 1, HandshakeRole::kInitiator, 2)) == Code::kUnauthenticated);
  CHECK(refusal(forged(7, 2)) == Code::kCorrupt);
  CHECK(refusal(forged(7, 0)) == Code::kCorrupt);
  CHECK(refusal({}) == Code::kCorrupt);
  CHECK(refusal(ByteVector(flipped.begin(), flipped.end() - 1)) == Code::kCorrupt);
  ByteVector longer = forged(7, 1);
  longer.push_back(std::byte{0});
  CHECK(refusal(longer) == Code::kCorrupt);
  Ends ends;
  REQUIRE(ends.b.on_proof(forged(7, 1), now, kNow).has_value());
  CHECK(code_of(ends.b.on_proof(forged(7, 1), now, kNow)) == Code::kCorrupt);
}

TEST_CASE("a flood of proofs under unknown keys is refused, one each minute is not") {
  Ends patient;
  TimePoint now = kNow;
  for (std::uint64_t n = 1; n <= 1000; ++n, now += std::chrono::minutes(1))
    REQUIRE(patient.b.on_proof(forged(100 + n % 100, n), patient.before, now).has_value());
  Ends flooded;
  for (std::uint64_t n = 1; n <= limits::kUnknownProofs; ++n)
    REQUIRE(flooded.b.on_proof(forged(100, n), flooded.before, kNow).has_value());
  CHECK(code_of(flooded.b.on_proof(forged(100, limits::kUnknownProofs + 1), flooded.before, kNow)) ==
        Code::kResourceExhausted);
}

TEST_CASE("a set that shares a key with the one before is a rotation, any other follows a revocation") {
  CHECK(after({{1}, {1, 2}, {1, 2, 3}, {2, 3, 4}}).version.revocations == after({{1}}).version.revocations);
  CHECK(after({{1, 2, 3}, {4, 5, 6}}).version.revocations == after({{1}}).version.revocations + 1);
  CHECK(after({{1, 2, 3}, {}}).keys.size() == 3);  // a keyring that has had keys keeps them
  // A nanoctrl that was restored may give an id of before to another key.
  Keyring keyring;
  keyring.begin({key(1)}, {});
  const std::uint64_t revocations = keyring.set().version.revocations;
  ctrl::ScopeKey other = key(2);
  other.id = 1;
  CHECK(keyring.begin({other}, {}));
  CHECK(keyring.set().version.revocations == revocations + 1);
  CHECK_FALSE(keyring.begin({other}, {}));
}

}  // namespace
}  // namespace slime::agent::session_keys_test
