#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kv/offer.h"

namespace slime::kv {

// The places of the readers of one version: each reads from its parent, the owner (ticket 0) or
// another reader, and a node has at most `fan_out` children. A state machine without I/O. All
// arguments but the times and `chunks` are a peer's; a reader is known by its ticket together with
// its connection. Thread: one.
class Tree {
 public:
  Tree(std::uint32_t fan_out, Nanos patience) : fan_out_(fan_out), patience_(patience) {}

  // Gives a new reader a place. kResourceExhausted: there is no free place now.
  Result<Place> join(std::uint64_t connection, std::string address, TimePoint now);
  // Gives a reader another place, since it cannot read from `failed`. Only the parent that the
  // reader has counts as failed: until it reports again, the parent is given to no reader. Errors:
  // as join(); kAborted if the reader has lost its place.
  Result<Place> move(std::uint64_t connection, std::uint64_t ticket, std::uint64_t failed, TimePoint now);
  // Notes how many chunks, from the first on, a reader has. `complete`: it has all. kAborted if the
  // reader has lost its place.
  Status report(std::uint64_t connection, std::uint64_t ticket, std::uint64_t ready, bool complete,
                TimePoint now);
  // Forgets a reader: at its own wish, or since its connection has ended.
  void leave(std::uint64_t connection, std::uint64_t ticket);
  void drop(std::uint64_t connection);
  // Forgets all readers, for another version. Their tickets are not used again.
  void clear();

  [[nodiscard]] std::size_t readers() const { return nodes_.size(); }
  [[nodiscard]] std::size_t complete() const;
  [[nodiscard]] std::uint32_t owner_children() const { return owner_children_; }
  // Returns the children of a node; 0 for an unknown ticket.
  [[nodiscard]] std::uint32_t children(std::uint64_t ticket) const;

 private:
  struct Node {
    std::uint64_t connection = 0;
    std::string address;
    std::uint64_t parent = 0;
    bool holds_place = false;  // counts among the parent's children
    bool complete = false;
    bool suspect = false;  // a child could not read from it, and it has not reported since
    std::uint32_t level = 1;
    std::uint32_t children = 0;
    std::uint64_t ready = 0;
    TimePoint heard{};
    std::vector<std::uint64_t> avoided;  // parents that failed for this reader
  };
  using Nodes = std::map<std::uint64_t, Node>;

  Result<Node*> find(std::uint64_t connection, std::uint64_t ticket);
  Result<Place> place(std::uint64_t ticket, Node& node);
  // Returns whether bytes come to `ticket` without `reader`: each node up to the owner, or to a
  // reader that has all bytes, is alive.
  [[nodiscard]] bool feeds(std::uint64_t ticket, std::uint64_t reader) const;
  void take_place_back(Node& node);
  void forget(Nodes::iterator node);
  void expire(TimePoint now);

  const std::uint32_t fan_out_;
  const Nanos patience_;
  std::uint64_t next_ = 1;
  std::uint32_t owner_children_ = 0;
  Nodes nodes_;
};

namespace limits {

// Readers of one broadcast at a time. Looking for a place takes time proportional to them.
inline constexpr std::size_t kReaders = 16384;
// Failed parents that the owner remembers for a reader; then it forgets the oldest.
inline constexpr std::size_t kAvoided = 16;

}  // namespace limits
}  // namespace slime::kv
