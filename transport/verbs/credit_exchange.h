#pragma once

#include <cstdint>

#include "transport/verbs/link.h"

namespace slime::transport::verbs {

// Sends grants to the peer and takes the peer's grants: in messages, in the credit word that the
// other side writes, and in frames of the side channel. Thread: the loop.
class CreditExchange {
 public:
  explicit CreditExchange(Link& link) : link_(link) {}

  // ---- credits that the peer gives
  // Returns OK if more than `reserve` credits are free. Otherwise returns the error for the post,
  // and tells the peer that this side is starved, unless a queued message (`message_waits`) will
  // tell the peer.
  Status need(std::uint64_t reserve, bool message_waits);
  // Returns whether a post that was refused for lack of credits would succeed now.
  bool wanted_are_free(bool message_waits);
  // Takes a grant. `limit`: all credits that the peer has given since the beginning.
  void take_grant(std::uint64_t limit);
  // Takes the grant that the peer has written into this side's credit word. Ignores the word while
  // this side waits for a wake-up, so that at most one wake-up is in flight.
  void look();
  // Tells the peer that this side is starved, unless the peer has been told already.
  void starve();
  // Gives credits that were unused for a while back to the peer. Lowers `next` to the time of the
  // next check, if that is earlier.
  void return_idle(TimePoint now, TimePoint& next);

  // ---- credits that the peer has
  void peer_starves(std::uint64_t limit);
  void peer_returns(std::uint64_t count);
  // Sends a message without bytes: a hello, or a wake-up with the grant for a starved peer. The
  // message uses the control slot at the peer. Returns false if the send queue is full.
  bool send_control();
  // Sends a grant by itself if one is due: as a wake-up to a starved peer, otherwise into the
  // peer's credit word.
  void send_grant();

 private:
  Link& link_;
};

}  // namespace slime::transport::verbs
