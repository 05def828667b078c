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
  kIdle,         // not needed yet, or closed in good order
  kResolving,    // the registry is asked for the address
  kHandshaking,  // connecting, until a message has gone both ways
  kReady,
  // closing from this side: operations in flight end, new ones wait for the next connection
  kDraining,
  kBroken,   // the connection broke; the next use connects at once
  kBackoff,  // attempts failed; the next may start at next_attempt()
};
std::string_view state_name(ConnectionState state);

// The state machine of the connection to one peer. Takes events, and returns the next step. No I/O,
// no clock, no thread.
class ConnectionMachine {
 public:
  enum class Step : std::uint8_t {
    kUse,           // use the connection: it is ready
    kWait,          // wait: another event will follow
    kResolve,       // find the address; a cached one will do
    kResolveFresh,  // find the address; ask the registry
    kConnect,       // connect to the address
    kFail,          // the attempt has failed: fail the waiting operations with reason()
    kRefuse,        // too early after a failure: fail the new operation with refusal()
  };

  // `by_name`: the peer must be resolved before connecting. `seed`: of the jitter.
  ConnectionMachine(bool by_name, std::uint64_t seed) : by_name_(by_name), rng_(seed) {}

  // An operation needs the connection. Returns kUse, kWait, kResolve, kConnect or kRefuse.
  Step use(TimePoint now);
  // The address is known. `cached`: it comes from memory and may be old, so that a failure to
  // connect leads to kResolveFresh. Returns kConnect.
  Step resolved(bool cached);
  // The address was not found, or the registry returned an address that has just failed. Returns
  // kFail.
  Step resolve_failed(Status reason, TimePoint now);
  // Returns kFail, or kResolveFresh if the address came from memory.
  Step connect_failed(Status reason, TimePoint now);
  // A handshake with this peer has succeeded, begun by either side. A message must still go both
  // ways.
  void handshaking();
  // A connection with this peer is usable, opened by either side.
  void ready();
  // This side closes the connection.
  void drain();
  // The connection is gone. An OK `reason`: closed in good order.
  void closed(Status reason);
  // Something new is known about the peer: the next use may try at once.
  void forget_failures();

  [[nodiscard]] ConnectionState state() const { return state_; }
  // of the last failure; OK when ready
  [[nodiscard]] const Status& reason() const { return reason_; }
  [[nodiscard]] std::uint32_t failures() const { return failures_; }
  [[nodiscard]] TimePoint next_attempt() const { return next_attempt_; }  // in kBackoff
  // Returns true if this attempt has failed once, with an address from memory; reason() is of that
  // failure.
  [[nodiscard]] bool retrying() const { return retrying_; }
  // Returns the error for an operation that comes in kBackoff: the state, the reason, and when the
  // next attempt may start.
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

// Returns whether operations that wait for readiness go on waiting after this failure: the peer is
// not reachable now, but may become so.
bool worth_waiting(const Status& reason);

}  // namespace slime::agent
