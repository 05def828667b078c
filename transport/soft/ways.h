#pragma once

#include "transport/soft/link.h"

namespace slime::transport::soft {

// Chooses how the bytes of a read or write get there: see Way. Decided once for each batch, the
// first time that nothing is in front of it. Thread: the loop.
class WayFinder {
 public:
  explicit WayFinder(Link& link) : link_(link) {}

  // Looks, and changes nothing.
  Way find(const OneSided& operation);
  // Decides for the operation at the head of its queue; kOpen: it waits for a word of the peer.
  Way decide(OneSided& operation);
  // Decides, and returns whether frames go for it: bytes, or addresses of them.
  bool by_frames(OneSided& operation) {
    const Way way = decide(operation);
    return way == Way::kWire || way == Way::kFetch;
  }
  // Asks the peer, so that the answer is there when the operation's turn comes.
  void ask_ahead(const OneSided& operation);
  // The peer's kernel has refused to read our memory: writes bring their bytes along from now on.
  void deny_fetches() { fetch_denied_ = true; }

 private:
  Way fetch_or_wire(const OneSided& operation);

  Link& link_;
  bool fetch_denied_ = false;
};

}  // namespace slime::transport::soft
