#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "agent/peer_agent.h"

namespace slime {

// Tells a peer how to connect to an endpoint. Has no keys. The program brings it to the peer by a
// way of its own, such as HTTP or a file.
struct EndpointInfo {
  std::string name;       // that the endpoint gives itself
  std::string address;    // "host:port"
  InstanceId instance{};  // of the process; zero: unknown, and connect() takes any

  // Returns one line of JSON, of about 120 bytes.
  [[nodiscard]] std::string to_json() const;
  static EndpointInfo of(const PeerAgent& agent);
  // Reads to_json(), or "host:port". kInvalidArgument says what is wrong.
  static Result<EndpointInfo> parse(std::string_view text);
};

// Connects the agent to the process that `to` describes, and returns the peer of that connection
// (Peer::of_connection); if the two are connected already, of the connection that there is. Errors:
// those of Peer::connect(); kUnavailable if another process has the address by now (the connection
// with that one stays). A timeout of zero is the default.
Result<Peer> connect(PeerAgent& agent, const EndpointInfo& to, Nanos timeout = {});

// A PeerAgent without a registry, which connects to peers that the user names, and accepts those
// that connect to it. Movable. Thread: any.
class Endpoint {
 public:
  // Listens. kInvalidArgument if `options` name a registry.
  static Result<Endpoint> create(PeerAgentOptions options = {});

  [[nodiscard]] EndpointInfo info() const { return EndpointInfo::of(*agent_); }
  // See slime::connect().
  Result<Peer> connect(const EndpointInfo& to, Nanos timeout = {}) {
    return slime::connect(*agent_, to, timeout);
  }
  // The same, with what EndpointInfo::parse() reads.
  Result<Peer> connect(std::string_view to, Nanos timeout = {});
  // See PeerAgent::accept().
  Result<Peer> accept(Nanos timeout = Nanos::max()) { return agent_->accept(timeout); }

  // Registers memory, or allocates it, and publishes it under `name`: peers find it with
  // Peer::region(name).
  Result<MemoryRegion> register_memory(std::string_view name, void* data, std::size_t bytes,
                                       Rights rights = Rights::kReadWrite);
  Result<MemoryRegion> allocate(std::string_view name, std::size_t bytes, Rights rights = Rights::kReadWrite);

  // The agent, for everything else. Valid as long as the endpoint.
  [[nodiscard]] PeerAgent& agent() const { return *agent_; }
  // See PeerAgent::close(). Ends accept(), too.
  Status close(Nanos timeout = limits::kCloseBound) { return agent_->close(timeout); }

 private:
  explicit Endpoint(std::unique_ptr<PeerAgent> agent) : agent_(std::move(agent)) {}
  Result<MemoryRegion> published(std::string_view name, Result<MemoryRegion> region);

  std::unique_ptr<PeerAgent> agent_;
};

}  // namespace slime
