#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace slime::agent {

// Decides which of several connections between two agents lives. Both agents may connect at once,
// under several names, or again after only one of them noticed a break. Exactly one connection must
// remain, and a connection with operations on it must not be taken away.
//
// A connection is usable only when both ends have made a channel on it. So one end decides alone:
// the agent with the larger instance id, the arbiter, has a channel on one connection at a time.
// The other end, the follower, makes a channel on every connection and uses the connection that
// becomes ready. When the arbiter has a connection and is offered another, the peer may have lost
// the first: the arbiter holds the new connection back and probes the old. If the old one is alive,
// the new one is dropped; if it is dead, the new one takes its place.
//
// No I/O. The caller chooses the ids: never 0, never reused. Thread: one.
class Pairing {
 public:
  using Id = std::uint64_t;
  enum class Verdict : std::uint8_t {
    kOpen,  // make a channel on the connection
    kDrop,  // close the connection; current() serves instead
    // keep the connection without a channel, until `open` or `drop` of later `Changes` names it
    kHold,
  };
  struct Changes {
    Id open = 0;    // a held connection: make a channel on it now
    Id retire = 0;  // the former current connection, which the peer has given up: close it
    // ask the other end whether it still has this connection; then call probed_alive() or closed()
    Id probe = 0;
    std::vector<Id> drop;  // held connections: close them
  };
  struct Arrival {
    Verdict verdict = Verdict::kOpen;
    Changes changes;
  };

  explicit Pairing(bool arbiter) : arbiter_(arbiter) {}

  // Event: a handshake succeeded. `ours`: this side opened the connection.
  Arrival arrived(Id id, bool ours);
  // Event: one message in each direction has arrived on the connection's channel.
  Changes ready(Id id);
  Changes probed_alive(Id id);
  // Event: the connection is gone, or this side started to close it. Unknown ids are ignored.
  Changes closed(Id id);

  // Returns the connection for new operations; 0: none.
  [[nodiscard]] Id current() const { return current_; }
  // Returns the current connection, else the newest one that may become current: an operation can
  // wait for it. 0: none.
  [[nodiscard]] Id hope() const { return current_ != 0 || opening_.empty() ? current_ : opening_.back(); }
  [[nodiscard]] bool empty() const { return current_ == 0 && opening_.empty() && held_.empty(); }

 private:
  Id probe_if_needed();

  const bool arbiter_;
  Id current_ = 0;  // at the arbiter it may not be ready yet
  bool ready_ = false;
  bool probing_ = false;
  std::vector<Id> opening_;  // the follower's channels that are not ready
  std::vector<Id> held_;     // the arbiter's connections without a channel, oldest first
};

}  // namespace slime::agent
