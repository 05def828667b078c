#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace slime::agent {

class Link;

// The name or address of a peer, as the user gave it, with the link that it led to last; or one
// connection with a peer. All copies of a Peer share one. Thread: any; the link: the loop.
class NamedPeer {
 public:
  explicit NamedPeer(std::string peer, std::uint64_t its_connection = 0)
      : name(std::move(peer)), connection(its_connection) {}
  NamedPeer(const NamedPeer&) = delete;
  NamedPeer& operator=(const NamedPeer&) = delete;

  const std::string name;
  // Id of the only connection that operations use; 0: any, and operations connect.
  const std::uint64_t connection;

 private:
  friend class LinkTable;
  Link* link_ = nullptr;
  std::uint64_t links_ = 0;  // the table's generation that link_ belongs to
};

}  // namespace slime::agent
