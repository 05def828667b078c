#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace slime::agent {

// Decides which of several connections between two agents lives. Both may open at once, under several names,
// or again after only one of them noticed a break; exactly one connection must come out, and none may be
// taken away from operations that already use it.
//
// A connection is usable only when both ends have made a channel on it. So one end decides alone: the agent
// with the larger instance id, the arbiter, has a channel on one connection at a time. The other end, the
// follower, makes one on every connection and uses the one that gets ready. When the arbiter is offered
// another connection while it has one, the peer may have lost the first, so the arbiter holds the new one
// back and probes the old: alive, the new one is dropped; dead, the new one takes its place.
//
// No I/O. Ids are the caller's, never 0, never reused. Thread: one.
class Pairing {
 public:
  using Id = std::uint64_t;
  enum class Verdict : std::uint8_t {
    kOpen,  // make a channel on it
    kDrop,  // close it; current() serves instead
    kHold,  // keep it without a channel, until it is opened or dropped
  };
  struct Changes {
    Id open = 0;           // a held one: make a channel on it now
    Id retire = 0;         // was current, and the peer has given it up: close it
    Id probe = 0;          // ask its other end whether it still has it; then call probed_alive() or closed()
    std::vector<Id> drop;  // held ones: close them
  };
  struct Arrival {
    Verdict verdict = Verdict::kOpen;
    Changes changes;
  };

  explicit Pairing(bool arbiter) : arbiter_(arbiter) {}

  // A handshake ended well. `ours`: we opened it.
  Arrival arrived(Id id, bool ours);
  // A message went both ways on a channel.
  Changes ready(Id id);
  Changes probed_alive(Id id);
  // It is gone, or we started to close it. Unknown ids are fine.
  Changes closed(Id id);

  // The connection for new operations; 0: none.
  [[nodiscard]] Id current() const { return current_; }
  // One that is current, or may become so: what an operation can wait for. 0: none.
  [[nodiscard]] Id hope() const { return current_ != 0 || opening_.empty() ? current_ : opening_.back(); }
  [[nodiscard]] bool empty() const { return current_ == 0 && opening_.empty() && held_.empty(); }

 private:
  Id probe_if_needed();

  const bool arbiter_;
  Id current_ = 0;  // the arbiter's may not be ready yet
  bool ready_ = false;
  bool probing_ = false;
  std::vector<Id> opening_;  // the follower's channels that are not ready
  std::vector<Id> held_;     // the arbiter's handshakes without a channel, oldest first
};

}  // namespace slime::agent
