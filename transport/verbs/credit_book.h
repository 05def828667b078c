#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "transport/endpoint/credit_ledger.h"
#include "transport/verbs/parameters.h"

namespace slime::transport::verbs {

// Keeps the credits of both directions, and which side waits to be woken. A side that has used its
// last credit says that it is starved; its peer sends a message (a wake-up) once that side may send
// more. Counts only; CreditExchange sends. Thread: the loop.
class CreditBook {
 public:
  // `initial`: credits that the peer gives before its first grant. `account` is open; one slot of
  // it is for the peer's control message, of which at most one is in flight.
  CreditBook(std::uint32_t initial, ReceivePool& pool, std::shared_ptr<CreditAccount> account)
      : ours(initial), given(pool, std::move(account), 1) {}

  SendCredits ours;      // given by the peer
  ReceiveCredits given;  // given to the peer

  // ---- this side is starved
  // Returns whether the peer was told that this side is starved, and has not answered. Until then
  // its credit word is not looked at.
  [[nodiscard]] bool starved() const { return starved_; }
  // Returns true if the peer must be told now.
  bool starve() { return !std::exchange(starved_, true); }
  void woken() { starved_ = false; }

  // ---- the peer is starved
  // Notes that the peer was given `limit` credits since the beginning and has used them all.
  // Returns false if the peer never had so many.
  bool peer_starves(std::uint64_t limit);
  [[nodiscard]] bool peer_starved() const { return peer_starved_; }
  // Returns whether a message would wake the peer: it is starved, and has more credits than it
  // knew.
  [[nodiscard]] bool wakes_peer() const { return peer_starved_ && given.granted() > peer_limit_; }
  void peer_woken() { peer_starved_ = false; }

  // Returns whether the peer must be told of a grant although no message is sent.
  [[nodiscard]] bool grant_due() const { return given.unannounced() && given.low(); }
  // Notes that a grant was sent without a message. A peer that needs this repeatedly gets more
  // credits at once, as if it were starved.
  void announce_alone(TimePoint now) {
    given.announce();
    if (now - std::exchange(last_grant_, now) < limits::kCreditIdle) given.grow();
  }

  // Return the credit parts of messages: the grant alone; the grant of a control message, which
  // wakes the peer; and all parts. `last`: no other message waits behind this one.
  [[nodiscard]] MessageNote plain_note() const { return {granted(), false, false, false}; }
  [[nodiscard]] MessageNote control_note() const { return {granted(), true, false, false}; }
  MessageNote next_note(bool last) {
    const bool last_credit = !starved_ && ours.free() == 0 && last;
    starved_ = starved_ || last_credit;
    const bool wakes = wakes_peer();
    peer_starved_ = peer_starved_ && !wakes;
    return {granted(), false, last_credit, wakes};
  }

 private:
  [[nodiscard]] std::uint32_t granted() const { return static_cast<std::uint32_t>(given.granted()); }

  bool starved_ = false;
  bool peer_starved_ = false;
  std::uint64_t peer_limit_ = 0;  // a grant that a starved peer knows of, or an earlier one
  TimePoint last_grant_{};        // last grant that no message carried
};

inline bool CreditBook::peer_starves(std::uint64_t limit) {
  if (limit > given.granted()) return false;
  peer_starved_ = true;
  peer_limit_ = limit;
  given.grow();
  return true;
}

}  // namespace slime::transport::verbs
