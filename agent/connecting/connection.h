#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "agent/limits.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"

namespace slime::agent {

enum class ConnectionState : std::uint8_t {
  kIdle,         // no connection: not used yet, or closed in good order
  kResolving,    // the registry is asked for the address
  kHandshaking,  // connecting, until one message in each direction has arrived
  kReady,
  // closing in good order: operations in flight finish, new ones wait for the next connection
  kDraining,
  kBroken,   // the connection broke; the next use connects at once
  kBackoff,  // an attempt failed; the next may start at next_attempt()
};
std::string_view state_name(ConnectionState state);
// Returns a clause that says what the peer or its connection is doing, for error texts.
std::string_view state_text(ConnectionState state);

// State machine of the connection to one peer. Its functions take events, and return what the
// caller must do next. No I/O, no clock, no thread.
class ConnectionMachine {
 public:
  enum class Step : std::uint8_t {
    kUse,           // use the connection: it is ready
    kWait,          // wait: another event will follow
    kResolve,       // find the address, in the cache or the registry
    kResolveFresh,  // find the address; ask the registry
    kConnect,       // connect to the address
    kFail,          // the attempt has failed: fail the waiting operations with reason()
    kRefuse,        // too early after a failure: fail the new operation with refusal()
  };

  // `by_name`: the peer's name must be resolved to an address before connecting. `seed`: for the
  // random part of the backoff.
  ConnectionMachine(bool by_name, std::uint64_t seed) : by_name_(by_name), rng_(seed) {}

  // Event: an operation needs the connection. Returns kUse, kWait, kResolve, kConnect or kRefuse.
  Step use(TimePoint now);
  // Event: the peer's address is known. `cached`: the address is from the cache and may be old, so
  // connect_failed() will return kResolveFresh. Returns kConnect.
  Step resolved(bool cached);
  // Event: the address was not found, or the registry returned an address that has just failed.
  // Returns kFail.
  Step resolve_failed(Status reason, TimePoint now);
  // Event: connecting failed. Returns kResolveFresh if the address came from the cache, else kFail.
  Step connect_failed(Status reason, TimePoint now);
  // Event: a handshake with the peer, begun by either side, succeeded. The connection is not usable
  // before ready().
  void handshaking();
  // Event: a connection with the peer, opened by either side, is usable.
  void ready();
  // This side closes the connection.
  void drain();
  // Event: the connection is gone. `reason`: the error that ended it; OK: closed in good order.
  void closed(Status reason);
  // Event: something new is known about the peer. Ends the backoff: the next use() connects at
  // once.
  void forget_failures();

  [[nodiscard]] ConnectionState state() const { return state_; }
  // of the last failure; OK when ready
  [[nodiscard]] const Status& reason() const { return reason_; }
  [[nodiscard]] std::uint32_t failures() const { return failures_; }
  [[nodiscard]] TimePoint next_attempt() const { return next_attempt_; }  // in kBackoff
  // Returns true during the second try of an attempt: the first try, with an address from the
  // cache, failed with reason().
  [[nodiscard]] bool retrying() const { return retrying_; }
  // Returns the error for an operation that begins in kBackoff. Its text has the state, the reason
  // of the last failure, and the time until the next attempt.
  [[nodiscard]] Status refusal(std::string_view peer, TimePoint now) const;

 private:
  Step begin();
  Step fail(Status reason, TimePoint now);

  const bool by_name_;
  Rng rng_;
  ConnectionState state_ = ConnectionState::kIdle;
  Status reason_;
  std::uint32_t failures_ = 0;
  TimePoint next_attempt_{};
  bool cached_ = false;
  bool retrying_ = false;
};

// Returns whether operations with wait_for_ready go on waiting after the failure `reason`: true if
// the peer may become reachable later.
bool worth_waiting(const Status& reason);

}  // namespace slime::agent
