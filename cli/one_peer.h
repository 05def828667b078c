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
  // A peer if one is named, else any live server of the service. kInvalidArgument for a timeout that is
  // none; errors of PeerAgent::start().
  static Result<std::unique_ptr<OnePeer>> open(const PeerOptions& options);
  ~OnePeer();
  OnePeer(const OnePeer&) = delete;
  OnePeer& operator=(const OnePeer&) = delete;

  // Ctrl-C cancels it, so that the peer's handler is told. `raw`: the body is for a method of bytes.
  Result<Payload> call(std::string_view service, std::string_view method, ByteVector body, bool raw = false);
  // What it serves: all, or the one that is named. Of any server it is the service that open() named.
  Result<std::vector<rpc::ServiceInfo>> services();
  Result<std::vector<rpc::ServiceInfo>> service(std::string_view name);
  // Says on stderr what there is, after a call for which something was missing. Nothing if the peer does not
  // say.
  void suggest(std::string_view service, std::string_view method);

  // Whether Ctrl-C was pressed.
  static bool interrupted();

 private:
  OnePeer(std::unique_ptr<PeerAgent> agent, const PeerOptions& options, Nanos timeout);
  Result<Payload> call_within(std::string_view service, std::string_view method, rpc::AttachedBody body,
                              Nanos timeout);
  Result<std::vector<rpc::ServiceInfo>> services_within(Nanos timeout);

  std::unique_ptr<PeerAgent> agent_;
  Peer peer_;
  std::optional<ServiceProxy> proxy_;  // instead of the peer
  Nanos timeout_;
};

}  // namespace slime::cli
