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

// The peer or the service of a command, and the agent that reaches it. Owns the agent, which lives
// as long as the command. From open() on Ctrl-C ends the waits. Thread: one.
class OnePeer {
 public:
  // Opens the named peer, or else any live server of the service. Errors: kInvalidArgument for an
  // invalid timeout; errors of PeerAgent::start().
  static Result<std::unique_ptr<OnePeer>> open(const PeerOptions& options);
  ~OnePeer();
  OnePeer(const OnePeer&) = delete;
  OnePeer& operator=(const OnePeer&) = delete;

  // Calls a method. Ctrl-C cancels the call, so that the peer's handler is told. `raw`: the body is
  // for a method of bytes.
  Result<Payload> call(std::string_view service, std::string_view method, ByteVector body, bool raw = false);
  // Returns the peer's services: all, or the named one. For any live server: the service that
  // open() named.
  Result<std::vector<rpc::ServiceInfo>> services();
  Result<std::vector<rpc::ServiceInfo>> service(std::string_view name);
  // After a call that failed because something was missing, prints to stderr what the peer offers.
  // Prints nothing if the peer does not answer.
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
