#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/operations/operations.h"
#include "transport/loop.h"

namespace slime::agent {

// Keeps the connections that the registry asks for: makes each, and makes it again when it breaks,
// for as long as it is wanted. A connection that is no longer wanted stays until it is idle for too
// long, like any other. Thread: the loop.
class Keeper {
 public:
  // Submits an operation on a peer, as a user would, which connects the peer.
  using Submit = std::function<void(const std::string& peer, std::shared_ptr<PeerOperation> operation)>;

  Keeper(transport::Loop& loop, Submit submit) : loop_(loop), submit_(std::move(submit)) {}
  ~Keeper() { close(); }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Sets the whole set of wanted peers. Nothing happens before start(), when names can be found.
  void want(std::vector<std::string> peers);
  void start();
  // The connection to this peer is gone.
  void lost(const std::string& peer);
  // Drops all wants. No callback runs afterwards.
  void close();

 private:
  class Attempt;
  struct Wanted {
    std::shared_ptr<Attempt> attempt;  // null: connected, or waiting for the next attempt
    transport::TimerId retry;
  };
  void connect(const std::string& peer);
  void connected(const std::string& peer);
  void failed(const std::string& peer, const Status& reason);

  transport::Loop& loop_;
  const Submit submit_;
  bool started_ = false;
  std::map<std::string, Wanted> wanted_;
};

}  // namespace slime::agent
