#pragma once

#include <functional>
#include <map>
#include <memory>

#include "agent/connecting/pairing.h"
#include "agent/connecting/session.h"
#include "agent/limits.h"
#include "agent/registry/keyring.h"
#include "transport/loop.h"

namespace slime::agent {

// Ends sessions for KeyWatch.
class KeyWatchOwner {
 public:
  // Closes, in good order, a session whose peer's version cannot prove a key on it; the next
  // operation makes a new session. Operations in flight have at most `left` to finish.
  virtual void replace_unproved(Session& session, Nanos left) = 0;
  // Tells the peer `reason`, and ends the session at once.
  virtual void expel(Session& session, Status reason) = 0;

 protected:
  ~KeyWatchOwner() = default;
};

// Follows the scope's keys on all sessions of an agent: proves the newest key to each peer, asks
// the registry for keys that peers proved and this agent does not have, and ends sessions whose
// peers prove no valid key in time. Thread: the loop.
class KeyWatch {
 public:
  using Sessions = std::map<Pairing::Id, std::shared_ptr<Session>>;

  // A null `keyring`: handshakes use the token or no secret, and every function does nothing.
  KeyWatch(transport::Loop& loop, std::shared_ptr<const Keyring> keyring, const Sessions& sessions,
           KeyWatchOwner& owner)
      : loop_(loop), keyring_(std::move(keyring)), sessions_(sessions), owner_(owner) {}
  KeyWatch(const KeyWatch&) = delete;
  KeyWatch& operator=(const KeyWatch&) = delete;
  ~KeyWatch();

  // Sets the function that asks the registry for newer keys; on_new_keys() follows if there are
  // any.
  void use(std::function<void()> refresh) { refresh_ = std::move(refresh); }
  // Stops all requests to the registry, because the agent closes.
  void stop_asking();

  // A session has become ready.
  void on_ready(Session& session);
  // The keyring has changed.
  void on_new_keys();
  // Event: a connected peer proved a key that is not in the keyring.
  void on_unknown_key();
  // Event: a handshake failed because its key is not in the keyring. The key may be newer than the
  // keyring, so the registry is asked.
  void on_stranger();

 private:
  void follow(Session& session, const KeySet& set);
  void ask();
  void arm(TimePoint when);
  void end_revoked();

  transport::Loop& loop_;
  const std::shared_ptr<const Keyring> keyring_;
  const Sessions& sessions_;
  KeyWatchOwner& owner_;
  std::function<void()> refresh_;
  // earliest time at which a failed handshake may cause the next request for keys
  TimePoint next_stranger_{};
  transport::TimerId question_;            // repeats the request that a peer's unknown key caused
  Nanos pause_ = limits::kMemberPauseMin;  // before that request
  transport::TimerId timer_;               // timer of end_revoked()
  bool timer_late_ = false;                // end_revoked() was put off once
};

}  // namespace slime::agent
