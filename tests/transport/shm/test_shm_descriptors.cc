// A process without free descriptors: nothing spins, operations that need one fail with the reason,
// and work again once descriptors are free. A program of its own: the limit is per process.
#include <doctest/doctest.h>

#include <memory>

#include "tests/support/descriptors.h"
#include "tests/transport/inbox.h"
#include "tests/transport/tcp_host.h"
#include "transport/shm/packet.h"
#include "transport/shm/parameters.h"
#include "transport/soft/frames.h"

namespace slime::transport::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool is_answer_to_want(Code code) {
  return code == Code::kResourceExhausted || code == Code::kUnavailable || code == Code::kDeadlineExceeded;
}

// A listener and a client, each on its own loop, with one manual clock.
struct Pair {
  Pair() : server({}, clock, {}, "shm"), client("client", {}, clock, {}, "shm") {}
  ~Pair() {
    attempt.reset();
    server.acceptor.connected.clear();
  }
  void connect() { attempt = std::make_unique<Attempt>(client, server.listener->address(), client.options); }

  // Runs `steps` of 50 ms, each with kTurns turns of both loops. Returns the turns that had work.
  int worked(int steps) {
    int out = 0;
    for (int step = 0; step < steps; ++step) {
      for (int turn = 0; turn < kTurns; ++turn) {
        out += server.loop->poll(Nanos::zero()) ? 1 : 0;
        out += client.loop->poll(Nanos::zero()) ? 1 : 0;
      }
      clock.advance(milliseconds(50));
    }
    return out;
  }

  // Sends a message over the connection. Returns true if it arrives, false if the connection ends.
  bool carries() {
    Inbox ours;
    Inbox theirs;
    Sending sending;
    Endpoint& endpoint = *(**attempt->result).endpoint;
    endpoint.set_receiver(ours);
    const Bytes parts[] = {as_bytes("are you there")};
    if (!endpoint.send(parts, sending).ok()) return false;
    if (server.acceptor.connected.empty()) {
      worked(200);
      return false;
    }
    server.acceptor.connected.back().endpoint->set_receiver(theirs);
    for (int step = 0; step < 200 && theirs.texts.empty() && !ours.closed; ++step) worked(1);
    const bool arrived = !theirs.texts.empty();
    attempt.reset();
    server.acceptor.connected.clear();
    return arrived;
  }

  static constexpr int kTurns = 20;
  ManualClock clock;
  TcpServer server;
  TcpHost client;
  std::unique_ptr<Attempt> attempt;
};

}  // namespace

TEST_CASE(
    "a port without descriptors leaves local sockets in the backlog, without spinning, and takes them "
    "later") {
  ManualClock clock;
  TcpHost host("host", {}, clock, {}, "shm");
  auto pending = host.port->prepare();
  REQUIRE(pending.has_value());
  const ByteVector told = (*pending)->parameters();
  const auto parameters = shm::Parameters::decode(Bytes(told).subspan(soft::Parameters::kBytes));
  REQUIRE(parameters.has_value());
  auto visitor = shm::connect_local(shm::local_socket_name(parameters->socket_name));
  REQUIRE(visitor.has_value());
  const auto worked = [&](int turns) {
    int out = 0;
    for (int turn = 0; turn < turns; ++turn) out += host.loop->poll(Nanos::zero()) ? 1 : 0;
    return out;
  };
  {
    const test::FewDescriptors none(0);
    CHECK(worked(1000) <= 2);
    for (int second = 0; second < 10; ++second) {
      clock.advance(limits::kAcceptBackoff);
      CHECK(worked(100) <= 3);  // tries to accept again, in vain
    }
  }
  REQUIRE(shm::send_packet(visitor->get(), as_bytes("nonsense"), {}).ok());
  clock.advance(limits::kAcceptBackoff);
  worked(10);
  CHECK(shm::receive_packet(visitor->get()).status().code() == Code::kUnavailable);  // accepted, dropped
}

TEST_CASE("whatever descriptor is missing, a connection fails with the reason and the next one is made") {
  for (int spare = 0; spare < 20; ++spare) {
    CAPTURE(spare);
    Pair pair;
    bool carried = false;
    {
      const test::FewDescriptors few(spare);
      pair.connect();
      constexpr int kSteps = 240;  // 12 s: longer than the timeouts of handshake and attach
      const int worked = pair.worked(kSteps);
      CHECK(worked < kSteps * Pair::kTurns / 4);
      REQUIRE(pair.attempt->done());
      if (pair.attempt->connected())
        carried = pair.carries();
      else
        CHECK_MESSAGE(is_answer_to_want(pair.attempt->code()), pair.attempt->text());
      MESSAGE(spare, " spare: ", worked, " turns of ", 2 * kSteps * Pair::kTurns, ", ",
              carried        ? "connected"
              : pair.attempt ? pair.attempt->text()
                             : "connected, and broke");
    }
    pair.attempt.reset();
    pair.server.acceptor.connected.clear();
    pair.worked(4);
    pair.connect();
    pair.worked(20);
    REQUIRE_MESSAGE(pair.attempt->connected(), pair.attempt->text());
    CHECK(pair.carries());
  }
}

TEST_CASE("a port that finds no descriptor for its memory or its event is an error, and opens later") {
  TcpHost host("host", {}, steady_clock(), {}, "shm");
  int failed = 0;
  for (int spare = 0; spare < 8; ++spare) {
    CAPTURE(spare);
    const test::FewDescriptors few(spare);
    const auto port = host.device->open_port(*host.loop, {});
    if (port) continue;
    ++failed;
    CHECK_MESSAGE(port.status().code() == Code::kResourceExhausted, port.status().to_string());
  }
  CHECK(failed >= 3);  // the memory, the event, the local socket
  CHECK(host.device->open_port(*host.loop, {}).has_value());
}

}  // namespace slime::transport::testing
