#pragma once

#include "transport/soft/link.h"

namespace slime::transport::soft {

// Chooses how the bytes of a read or write move (enum Way). Decides once for each batch, when the
// batch comes to the head of its queue. Thread: the loop.
class WayFinder {
 public:
  explicit WayFinder(Link& link) : link_(link) {}

  // Finds the way. Changes nothing.
  Way find(const OneSided& operation);
  // Decides for the operation at the head of its queue. kOpen: not decided, because the operation
  // waits for an answer of the peer.
  Way decide(OneSided& operation);
  // Decides. Returns true if frames carry the operation: its bytes (kWire), or the addresses of its
  // bytes (kFetch).
  bool by_frames(OneSided& operation) {
    const Way way = decide(operation);
    return way == Way::kWire || way == Way::kFetch;
  }
  // Asks the peer for the region of a read when it is posted, so that the answer is there when its
  // turn comes.
  void ask_ahead(const OneSided& operation);
  // Call when the peer's kernel has refused to read memory of this side: later writes send their
  // bytes in frames.
  void deny_fetches() { fetch_denied_ = true; }

 private:
  Way fetch_or_wire(const OneSided& operation);

  Link& link_;
  bool fetch_denied_ = false;
};

}  // namespace slime::transport::soft
