#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "transport/endpoint/credit_ledger.h"
#include "transport/verbs/parameters.h"

namespace slime::transport::verbs {

// Counts the message credits of both directions, and notes which side is starved. A side that has
// used its last credit tells its peer that it is starved. The peer sends a message, the wake-up,
// once it has granted more credits. CreditExchange does the sending. Thread: the loop.
class CreditBook {
 public:
  // `initial`: credits that the peer gives before its first grant. `account`: the slots for the
  // credits that the peer gets; one of the slots is for its control message, of which at most one
  // is in flight.
  CreditBook(std::uint32_t initial, ReceivePool& pool, std::shared_ptr<CreditAccount> account)
      : ours(initial), given(pool, std::move(account), 1) {}

  SendCredits ours;      // given by the peer
  ReceiveCredits given;  // given to the peer

  // ---- this side is starved
  // Returns whether the peer was told that this side is starved, and has not woken this side since.
  // Meanwhile CreditExchange does not read the credit word.
  [[nodiscard]] bool starved() const { return starved_; }
  // Notes that this side is starved. Returns true if the peer has not been told yet: the caller
  // must tell it.
  bool starve() { return !std::exchange(starved_, true); }
  void woken() { starved_ = false; }

  // ---- the peer is starved
  // Notes that the peer is starved: it has used all of the `limit` credits that it knows of,
  // counted from the beginning. Returns false if it was never given so many.
  bool peer_starves(std::uint64_t limit);
  [[nodiscard]] bool peer_starved() const { return peer_starved_; }
  // Returns whether the next message to the peer is its wake-up: the peer is starved, and has been
  // granted more credits than it knew when it said so.
  [[nodiscard]] bool wakes_peer() const { return peer_starved_ && given.granted() > peer_limit_; }
  void peer_woken() { peer_starved_ = false; }

  // Returns whether a grant must be sent by itself: the peer has few credits left, and no message
  // has told it of the grant.
  [[nodiscard]] bool grant_due() const { return given.unannounced() && given.low(); }
  // Notes that a grant was sent by itself. If the one before was sent less than limits::kCreditIdle
  // ago, gives the peer more credits at once, as for a starved peer.
  void announce_alone(TimePoint now) {
    given.announce();
    if (now - std::exchange(last_grant_, now) < limits::kCreditIdle) given.grow();
  }

  // Return the credit part of a message. plain_note(): only the grant. control_note(): of a control
  // message, which wakes the peer. next_note(): the grant, and whether this side is now starved and
  // the peer is woken; `last`: no other message waits behind this one.
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
  std::uint64_t peer_limit_ = 0;  // all credits of which a starved peer knew when it said so
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
