#pragma once

#include <memory>
#include <thread>

#include "agent/peer_agent.h"
#include "bench/options.h"

namespace slime::bench {

// The server's side of `p2p` with messages, for each peer that connects: receives, and with
// Options::dual also sends, one message each way at a time. Adds the method "wrong" to
// `service`: the number of messages that were not what the client sends. The agent outlives this.
class MessageServer {
 public:
  static Result<std::unique_ptr<MessageServer>> start(PeerAgent& agent, rpc::Service& service,
                                                      const Options& options);
  ~MessageServer();

 private:
  struct State;
  MessageServer(std::shared_ptr<State> state, std::thread thread);
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace slime::bench
