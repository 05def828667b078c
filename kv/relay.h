#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "base/clock.h"
#include "base/future.h"
#include "base/mutex.h"
#include "base/result.h"
#include "kv/offer.h"

namespace slime::kv {

// A reader as the parent of others: tells its children how many chunks, from the first on, it has.
// A child asks with the number that it knows, and the answer waits until there are more.
// Thread: any.
class Relay {
 public:
  explicit Relay(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}

  // Serves the children of `self`; it and the agent keep it.
  static Status serve(PeerAgent& agent, const std::string& service, const std::shared_ptr<Relay>& self);

  // Begins a version of which no chunk is here yet.
  void begin(const Offer& offer);
  void advance(std::uint64_t ready);
  // Refuses children from now on, and tells those that wait.
  void stop();
  // Waits until no child reads any more. Returns false on timeout, and after interrupt(). Call it
  // after stop().
  bool wait_alone(Nanos timeout);
  // Ends wait_alone(), now or later, until the next stop().
  void interrupt();
  [[nodiscard]] std::size_t children() const;

 private:
  struct Child {
    std::uint64_t connection = 0;
    std::unique_ptr<rpc::Request> waiting;  // not answered yet
    std::uint64_t known = 0;
  };
  void ask(rpc::Request request);
  void done(std::uint64_t connection, std::uint64_t ticket);
  void drop(std::uint64_t connection);
  // Completes the promise of wait_alone() if no child is left.
  void note_children() SLIME_REQUIRES(mutex_);

  const std::shared_ptr<Driver> driver_;
  mutable Mutex mutex_;
  bool serving_ SLIME_GUARDED_BY(mutex_) = false;
  std::uint64_t source_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t version_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t ready_ SLIME_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Child> children_ SLIME_GUARDED_BY(mutex_);  // by ticket
  bool interrupted_ SLIME_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Promise<None>> alone_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::kv
