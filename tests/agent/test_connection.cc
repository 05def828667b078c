#include <doctest/doctest.h>

#include "agent/connecting/connection.h"

namespace slime::agent::connection_test {
namespace {

using Step = ConnectionMachine::Step;
using State = ConnectionState;
using std::chrono::milliseconds;

constexpr TimePoint kStart{std::chrono::hours(1)};

Status refused() { return Status(Code::kUnavailable, "connection refused"); }

TEST_CASE("a named peer is resolved, connected, ready") {
  ConnectionMachine machine(true, 1);
  CHECK(machine.state() == State::kIdle);
  CHECK(machine.use(kStart) == Step::kResolve);
  CHECK(machine.use(kStart) == Step::kWait);
  CHECK(machine.resolved(true) == Step::kConnect);
  CHECK(machine.state() == State::kHandshaking);
  CHECK(machine.use(kStart) == Step::kWait);
  machine.ready();
  CHECK(machine.use(kStart) == Step::kUse);
}

TEST_CASE("an address is connected at once and never resolved") {
  ConnectionMachine machine(false, 1);
  CHECK(machine.use(kStart) == Step::kConnect);
  CHECK(machine.connect_failed(refused(), kStart) == Step::kFail);
  CHECK(machine.state() == State::kBackoff);
}

TEST_CASE("a failure with a remembered address asks the registry once, then fails") {
  ConnectionMachine machine(true, 1);
  static_cast<void>(machine.use(kStart));
  static_cast<void>(machine.resolved(true));
  CHECK(machine.connect_failed(refused(), kStart) == Step::kResolveFresh);
  CHECK(machine.state() == State::kResolving);
  CHECK(machine.retrying());
  CHECK(machine.resolved(false) == Step::kConnect);
  CHECK(machine.connect_failed(refused(), kStart) == Step::kFail);
  CHECK(machine.failures() == 1);
}

TEST_CASE("after a break the first reconnect is immediate, after a failure there is a pause") {
  ConnectionMachine machine(false, 1);
  static_cast<void>(machine.use(kStart));
  machine.ready();
  machine.closed(refused());
  CHECK(machine.state() == State::kBroken);
  CHECK(machine.use(kStart) == Step::kConnect);
  static_cast<void>(machine.connect_failed(refused(), kStart));
  CHECK(machine.use(kStart) == Step::kRefuse);
  CHECK(machine.use(machine.next_attempt()) == Step::kConnect);
}

TEST_CASE("the pause doubles up to its cap, with jitter of at most half, and a success forgets it") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    ConnectionMachine machine(false, seed);
    TimePoint now = kStart;
    Nanos full = limits::kBackoffMin;
    for (int i = 0; i < 40; ++i) {
      REQUIRE(machine.use(now) == Step::kConnect);
      static_cast<void>(machine.connect_failed(refused(), now));
      const Nanos pause = machine.next_attempt() - now;
      CHECK(pause <= full);
      CHECK(pause >= full / 2);
      now = machine.next_attempt();
      full = std::min(full * 2, limits::kBackoffMax);
    }
    static_cast<void>(machine.use(now));
    machine.ready();
    machine.closed(refused());
    static_cast<void>(machine.use(now));
    static_cast<void>(machine.connect_failed(refused(), now));
    CHECK(machine.next_attempt() - now <= limits::kBackoffMin);
  }
}

TEST_CASE("a refusal names the state, the reason and when to come back") {
  ConnectionMachine machine(false, 1);
  static_cast<void>(machine.use(kStart));
  static_cast<void>(machine.connect_failed(refused(), kStart));
  const Status status = machine.refusal("worker:0", kStart);
  CHECK(status.code() == Code::kUnavailable);
  CHECK(status.text().find("worker:0: backoff, next attempt in ") == 0);
  CHECK(status.text().find("after 1 failure: connection refused") != std::string::npos);
}

TEST_CASE("what no waiting mends keeps its code while it is refused") {
  for (const Code code : {Code::kUnauthenticated, Code::kNotFound, Code::kPermissionDenied}) {
    ConnectionMachine machine(false, 1);
    static_cast<void>(machine.use(kStart));
    static_cast<void>(machine.connect_failed(Status(code, "why"), kStart));
    CHECK(machine.refusal("p", kStart).code() == code);
  }
  CHECK(worth_waiting(refused()));
  CHECK(worth_waiting(Status(Code::kNotFound, "not yet")));
  CHECK_FALSE(worth_waiting(Status(Code::kUnauthenticated, "token")));
}

TEST_CASE("news about the peer end the pause") {
  ConnectionMachine machine(true, 1);
  static_cast<void>(machine.use(kStart));
  static_cast<void>(machine.resolve_failed(Status(Code::kNotFound, "nobody"), kStart));
  CHECK(machine.use(kStart) == Step::kRefuse);
  machine.forget_failures();
  CHECK(machine.use(kStart) == Step::kResolve);
}

TEST_CASE("while it drains operations wait, and then it is idle and connects again") {
  ConnectionMachine machine(false, 1);
  static_cast<void>(machine.use(kStart));
  machine.ready();
  machine.drain();
  CHECK(machine.state() == State::kDraining);
  CHECK(machine.use(kStart) == Step::kWait);
  machine.closed(refused());
  CHECK(machine.state() == State::kIdle);
  CHECK(machine.use(kStart) == Step::kConnect);
}

TEST_CASE("a peer that came to us is ready without an attempt of ours") {
  ConnectionMachine machine(true, 1);
  machine.ready();
  CHECK(machine.use(kStart) == Step::kUse);
  CHECK(machine.reason().ok());
}

}  // namespace
}  // namespace slime::agent::connection_test
