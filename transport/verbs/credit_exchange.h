#pragma once

#include <cstdint>

#include "transport/verbs/link.h"

namespace slime::transport::verbs {

// Tells the peer of grants, and takes the peer's grants: by messages, by the credit word, and by
// frames of the side channel. Thread: the loop.
class CreditExchange {
 public:
  explicit CreditExchange(Link& link) : link_(link) {}

  // ---- credits that the peer gives
  // Succeeds if more than `reserve` credits are free. `message_waits`: a message is queued, which
  // will tell the peer that this side is starved.
  Status need(std::uint64_t reserve, bool message_waits);
  // Returns whether a refused post would pass now.
  bool wanted_are_free(bool message_waits);
  // Takes a grant: the peer has given `limit` credits since the beginning.
  void take_grant(std::uint64_t limit);
  // Takes the grant that the peer has written into this side's credit word. While this side waits
  // for the peer's wake-up, ignores the word, so that at most one wake-up is in flight.
  void look();
  // Tells the peer that this side is starved, if the peer does not know.
  void starve();
  // Gives credits back that were not used for a while; `next` becomes the time of the next look if
  // that is earlier.
  void return_idle(TimePoint now, TimePoint& next);

  // ---- credits that the peer has
  void peer_starves(std::uint64_t limit);
  void peer_returns(std::uint64_t count);
  // Sends a message without bytes: a hello, or grants for a starved peer. It takes the peer's
  // control slot. Returns false if there is no room.
  bool send_control();
  // Tells the peer of a grant that no message carried.
  void send_grant();

 private:
  Link& link_;
};

}  // namespace slime::transport::verbs
