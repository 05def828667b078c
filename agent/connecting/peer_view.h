#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "agent/connecting/connection.h"
#include "base/result.h"
#include "rpc/channel.h"
#include "transport/connect.h"
#include "transport/counters.h"

namespace slime::agent {

class Link;
class Session;

// A peer in info().
struct PeerView {
  std::string name;
  std::string address;
  transport::PeerIdentity identity;
  ConnectionState state = ConnectionState::kIdle;
  Status error;
  std::uint32_t failures = 0;
  std::size_t waiting = 0;
  std::uint64_t connects = 0;
  std::uint64_t connection = 0;  // id of the connection; 0: none
  bool initiator = false;
  std::string provider;
  std::string reason;  // reason for the choice of `provider`
  std::string endpoint;
  rpc::ChannelCounters channel;
  transport::EndpointCounters bytes;
  std::size_t in_flight = 0;  // operations that the endpoint has
  std::uint64_t credits = 0;  // messages that the endpoint would take now
};

// Returns the view of a peer by name or address.
PeerView view_of(const Link& link);
// Returns the view of a peer of one connection.
PeerView view_of(const std::string& name, const Session& session);

}  // namespace slime::agent
