#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/operations/operations.h"
#include "transport/loop.h"

namespace slime::agent {

// Keeps the connections that the registry asks for: connects each wanted peer, and connects again
// after each break. A connection that is no longer wanted stays open until the limit on connections
// closes it, like any idle connection. Thread: the loop.
class Keeper {
 public:
  // Submits an operation on `peer` as a user would, so the agent connects to the peer.
  using Submit = std::function<void(const std::string& peer, OperationPtr<PeerOperation> operation)>;

  Keeper(transport::Loop& loop, Submit submit) : loop_(loop), submit_(std::move(submit)) {}
  ~Keeper() { close(); }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Replaces the set of wanted peers. Connects to none before start(): names cannot be found
  // earlier.
  void want(std::vector<std::string> peers);
  void start();
  // The connection to this peer is gone.
  void lost(const std::string& peer);
  // Wants no peer any more. No callback runs afterwards.
  void close();

 private:
  class Attempt;
  struct Wanted {
    // waits for the connection; null: connected, or `retry` is armed
    OperationPtr<PeerOperation> attempt;
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
