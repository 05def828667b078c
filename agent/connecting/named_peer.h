#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace slime::agent {

class Link;

// The name or address of a peer, as the user gave it, with the link that it led to last. All copies
// of a Peer share one. Thread: any; the link: the loop.
class NamedPeer {
 public:
  explicit NamedPeer(std::string peer) : name(std::move(peer)) {}
  NamedPeer(const NamedPeer&) = delete;
  NamedPeer& operator=(const NamedPeer&) = delete;

  const std::string name;

 private:
  friend class LinkTable;
  Link* link_ = nullptr;
  std::uint64_t links_ = 0;  // the table's generation that link_ belongs to
};

}  // namespace slime::agent
