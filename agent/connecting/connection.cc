#include "agent/connecting/connection.h"

#include <algorithm>

#include "base/check.h"
#include "base/str.h"

namespace slime::agent {

std::string_view state_name(ConnectionState state) {
  switch (state) {
    case ConnectionState::kIdle:
      return "idle";
    case ConnectionState::kResolving:
      return "resolving";
    case ConnectionState::kHandshaking:
      return "handshaking";
    case ConnectionState::kReady:
      return "ready";
    case ConnectionState::kDraining:
      return "draining";
    case ConnectionState::kBroken:
      return "broken";
    case ConnectionState::kBackoff:
      return "backoff";
  }
  return "unknown";
}

std::string_view state_text(ConnectionState state) {
  switch (state) {
    case ConnectionState::kIdle:
      return "there is no connection";
    case ConnectionState::kResolving:
      return "the peer's address is not known yet";
    case ConnectionState::kHandshaking:
      return "the peer has not answered the handshake";
    case ConnectionState::kReady:
      return "the connection is ready";
    case ConnectionState::kDraining:
      return "the connection is closing";
    case ConnectionState::kBroken:
      return "the connection is broken";
    case ConnectionState::kBackoff:
      return "the next attempt to connect is not due yet";
  }
  return "the connection is in an unknown state";
}

bool worth_waiting(const Status& reason) {
  switch (reason.code()) {
    case Code::kUnavailable:
    case Code::kNotFound:
    case Code::kAborted:
    case Code::kDeadlineExceeded:
    case Code::kResourceExhausted:
      return true;
    default:
      return false;
  }
}

ConnectionMachine::Step ConnectionMachine::begin() {
  state_ = by_name_ ? ConnectionState::kResolving : ConnectionState::kHandshaking;
  cached_ = retrying_ = false;
  return by_name_ ? Step::kResolve : Step::kConnect;
}

ConnectionMachine::Step ConnectionMachine::use(TimePoint now) {
  switch (state_) {
    case ConnectionState::kReady:
      return Step::kUse;
    case ConnectionState::kResolving:
    case ConnectionState::kHandshaking:
    case ConnectionState::kDraining:
      return Step::kWait;
    case ConnectionState::kBackoff:
      if (now < next_attempt_) return Step::kRefuse;
      return begin();
    case ConnectionState::kIdle:
    case ConnectionState::kBroken:
      return begin();
  }
  return Step::kWait;
}

ConnectionMachine::Step ConnectionMachine::resolved(bool cached) {
  SLIME_CHECK(state_ == ConnectionState::kResolving);
  state_ = ConnectionState::kHandshaking;
  cached_ = cached;
  return Step::kConnect;
}

ConnectionMachine::Step ConnectionMachine::resolve_failed(Status reason, TimePoint now) {
  SLIME_CHECK(state_ == ConnectionState::kResolving);
  return fail(std::move(reason), now);
}

ConnectionMachine::Step ConnectionMachine::connect_failed(Status reason, TimePoint now) {
  SLIME_CHECK(state_ == ConnectionState::kHandshaking);
  if (cached_) {
    cached_ = false;
    retrying_ = true;
    state_ = ConnectionState::kResolving;
    reason_ = std::move(reason);
    return Step::kResolveFresh;
  }
  return fail(std::move(reason), now);
}

ConnectionMachine::Step ConnectionMachine::fail(Status reason, TimePoint now) {
  SLIME_CHECK(!reason.ok());
  reason_ = std::move(reason);
  ++failures_;
  state_ = ConnectionState::kBackoff;
  const std::uint32_t doublings = std::min(failures_ - 1, 16U);
  const Nanos full = std::min(limits::kBackoffMin * (std::int64_t{1} << doublings), limits::kBackoffMax);
  const auto half = static_cast<std::uint64_t>(full.count() / 2);
  next_attempt_ = deadline_after(now, full - Nanos(static_cast<std::int64_t>(rng_.below(half + 1))));
  return Step::kFail;
}

void ConnectionMachine::handshaking() {
  SLIME_CHECK(state_ != ConnectionState::kReady);
  state_ = ConnectionState::kHandshaking;
}

void ConnectionMachine::ready() {
  state_ = ConnectionState::kReady;
  reason_ = Status();
  failures_ = 0;
}

void ConnectionMachine::drain() {
  if (state_ == ConnectionState::kReady) state_ = ConnectionState::kDraining;
}

void ConnectionMachine::closed(Status reason) {
  const bool orderly = reason.ok() || state_ == ConnectionState::kDraining;
  state_ = orderly ? ConnectionState::kIdle : ConnectionState::kBroken;
  reason_ = std::move(reason);
}

void ConnectionMachine::forget_failures() {
  failures_ = 0;
  if (state_ == ConnectionState::kBackoff) state_ = ConnectionState::kBroken;
}

Status ConnectionMachine::refusal(std::string_view peer, TimePoint now) const {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(std::max(next_attempt_ - now, Nanos::zero()));
  // The refusal has the code kUnavailable if a later attempt may succeed, else the code of the
  // failure.
  const bool mends = worth_waiting(reason_) && reason_.code() != Code::kNotFound;
  return Status(mends ? Code::kUnavailable : reason_.code(),
                str(peer, ": ", state_name(state_), ", next attempt in ", left.count(), " ms, after ",
                    failures_, failures_ == 1 ? " failure" : " failures", ": ", reason_.text()));
}

}  // namespace slime::agent
