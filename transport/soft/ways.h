#pragma once

#include "transport/soft/link.h"

namespace slime::transport::soft {

// Chooses how the bytes of a read or write move: see Way. Decides once for each batch, when nothing
// is in front of it for the first time. Thread: the loop.
class WayFinder {
 public:
  explicit WayFinder(Link& link) : link_(link) {}

  // Finds the way. Changes nothing.
  Way find(const OneSided& operation);
  // Decides for the operation at the head of its queue. kOpen: the operation waits for an answer of
  // the peer.
  Way decide(OneSided& operation);
  // Decides, and returns whether frames carry the operation: bytes, or addresses of bytes.
  bool by_frames(OneSided& operation) {
    const Way way = decide(operation);
    return way == Way::kWire || way == Way::kFetch;
  }
  // Asks the peer early, so that the answer is there when the operation's turn comes.
  void ask_ahead(const OneSided& operation);
  // The peer's kernel has refused to read our memory: frames of later writes carry the bytes.
  void deny_fetches() { fetch_denied_ = true; }

 private:
  Way fetch_or_wire(const OneSided& operation);

  Link& link_;
  bool fetch_denied_ = false;
};

}  // namespace slime::transport::soft
