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
  kIdle,         // nobody needed it yet, or it was closed in good order
  kResolving,    // the registry is asked for the address
  kHandshaking,  // connecting, until a message went both ways
  kReady,
  kDraining,  // we close it: what is in flight ends, new operations wait for the next connection
  kBroken,    // it broke; the next use connects at once
  kBackoff,   // attempts failed; the next one may start at next_attempt()
};
std::string_view state_name(ConnectionState state);

// The life of the connection to one peer, without the connection: what happened comes in as events, what to
// do next goes out as a Step. No I/O, no clock, no thread.
class ConnectionMachine {
 public:
  enum class Step : std::uint8_t {
    kUse,           // it is ready
    kWait,          // something is under way; its end will be another event
    kResolve,       // find the address: what is cached will do
    kResolveFresh,  // find the address: ask the registry itself
    kConnect,       // connect to the address
    kFail,          // the attempt is over: reason() for all who wait
    kRefuse,        // too early after a failure: refusal() for who asked
  };

  // `by_name`: it has to be resolved before it can be connected. `seed` is for the jitter.
  ConnectionMachine(bool by_name, std::uint64_t seed) : by_name_(by_name), rng_(seed) {}

  // An operation needs the connection: kUse, kWait, kResolve, kConnect or kRefuse.
  Step use(TimePoint now);
  // The address is known. `cached`: from memory, so it may be old, and a failure to connect to it leads to
  // kResolveFresh. kConnect.
  Step resolved(bool cached);
  // It could not be found, or what the registry says has just been tried. kFail.
  Step resolve_failed(Status reason, TimePoint now);
  // kFail, or kResolveFresh when the address was a cached one.
  Step connect_failed(Status reason, TimePoint now);
  // A handshake with this peer has ended well, whoever began it: what is left is that a message goes both
  // ways.
  void handshaking();
  // A connection with this peer is usable, whoever opened it.
  void ready();
  // We close it.
  void drain();
  // The connection is gone. OK: in good order.
  void closed(Status reason);
  // Something new is known about the peer: the next use may try at once.
  void forget_failures();

  [[nodiscard]] ConnectionState state() const { return state_; }
  [[nodiscard]] const Status& reason() const { return reason_; }  // of the last failure; OK when ready
  [[nodiscard]] std::uint32_t failures() const { return failures_; }
  [[nodiscard]] TimePoint next_attempt() const { return next_attempt_; }  // in kBackoff
  // This attempt has failed once, with an address from memory; reason() is of that.
  [[nodiscard]] bool retrying() const { return retrying_; }
  // For an operation that comes in kBackoff: the state, the reason, when the next attempt may start.
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

// Whether who waits for readiness goes on waiting after this failure: the peer is not there, or not yet.
bool worth_waiting(const Status& reason);

}  // namespace slime::agent
