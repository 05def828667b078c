#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/peer_agent.h"
#include "cli/commands.h"
#include "rpc/reflection.h"

namespace slime::cli {

// The target of a command (a peer, or any live server of a service) and the agent that connects to
// it. The agent closes in the destructor. After open(), Ctrl-C cancels the calls under way. Thread:
// one.
class OnePeer {
 public:
  // Starts the agent. The target is `options.peer`, or any live server of `options.service` if
  // `peer` is empty. Errors: kInvalidArgument for an invalid timeout; errors of PeerAgent::start().
  static Result<std::unique_ptr<OnePeer>> open(const PeerOptions& options);
  ~OnePeer();
  OnePeer(const OnePeer&) = delete;
  OnePeer& operator=(const OnePeer&) = delete;

  // Calls a method and waits for the reply. Ctrl-C cancels the call at the peer too. `raw`: the
  // method takes bytes, and `body` is sent unchanged.
  Result<Payload> call(std::string_view service, std::string_view method, ByteVector body, bool raw = false);
  // services() returns all services of the peer; without a peer, only the service that open()
  // named. service() returns the service `name`.
  Result<std::vector<rpc::ServiceInfo>> services();
  Result<std::vector<rpc::ServiceInfo>> service(std::string_view name);
  // Prints to stderr which services, methods or parameters the peer has. For a call that failed
  // because a service, method or parameter does not exist. Prints nothing if the peer does not
  // answer.
  void suggest(std::string_view service, std::string_view method);

  // Returns whether Ctrl-C was pressed.
  static bool interrupted();

 private:
  OnePeer(std::unique_ptr<PeerAgent> agent, const PeerOptions& options, Nanos timeout);
  Result<Payload> call_within(std::string_view service, std::string_view method, rpc::AttachedBody body,
                              Nanos timeout);
  Result<std::vector<rpc::ServiceInfo>> services_within(Nanos timeout);

  std::unique_ptr<PeerAgent> agent_;
  Peer peer_;
  std::optional<ServiceProxy> proxy_;  // used instead of the peer
  Nanos timeout_;
};

}  // namespace slime::cli
