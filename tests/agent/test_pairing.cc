#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/connecting/pairing.h"
#include "base/random.h"

namespace slime::agent {
namespace {

// Two agents and everything that is under way between them, as a model: connections are pairs of
// queues, and any of them may deliver next. It is copied at each choice, so that all orders can be
// tried.
class Model {
 public:
  enum Side { kFollower = 0, kArbiter = 1 };
  enum class Frame { kOpen, kClose, kPing, kPong };
  enum class Local { kNone, kHeld, kOpen, kReady, kClosed };

  struct Connection {
    Side initiator = kFollower;
    Local local[2] = {Local::kNone, Local::kNone};
    std::deque<Frame> to[2];  // what that side has not seen yet
  };

  // One thing that may happen next.
  struct Event {
    enum Kind { kStart, kFinish, kDeliver, kBreak } kind;
    Pairing::Id id;
    Side side;
  };

  Model(int starts_follower, int starts_arbiter, int breaks)
      : starts_{starts_follower, starts_arbiter}, breaks_(breaks) {}

  std::vector<Event> events() const {
    std::vector<Event> out;
    for (const Side side : {kFollower, kArbiter}) {
      // A start that is left over is one under another name: allowed at any time.
      if (starts_[side] > 0) out.push_back({Event::kStart, 0, side});
    }
    for (const auto& [id, c] : connections_) {
      const Side acceptor = other(c.initiator);
      if (c.local[acceptor] == Local::kNone) {
        out.push_back({Event::kFinish, id, acceptor});
      } else if (c.local[c.initiator] == Local::kNone) {
        out.push_back({Event::kFinish, id, c.initiator});
      }
      for (const Side side : {kFollower, kArbiter}) {
        const bool listens = c.local[side] == Local::kOpen || c.local[side] == Local::kReady;
        if (!c.to[side].empty() && listens) out.push_back({Event::kDeliver, id, side});
        if (breaks_ > 0 && c.local[side] == Local::kReady) out.push_back({Event::kBreak, id, side});
      }
    }
    // A side that wants to talk and has nothing to hope for connects.
    if (out.empty()) {
      for (const Side side : {kFollower, kArbiter}) {
        if (pairing_[side].hope() == 0) out.push_back({Event::kStart, 0, side});
      }
    }
    return out;
  }

  void run(const Event& event) {
    switch (event.kind) {
      case Event::kStart:
        if (starts_[event.side] > 0) --starts_[event.side];
        connections_[++last_id_].initiator = event.side;
        return;
      case Event::kFinish:
        finish(event.id, event.side);
        return;
      case Event::kDeliver:
        deliver(event.id, event.side);
        return;
      case Event::kBreak:
        --breaks_;
        close(event.id, event.side);
        return;
    }
  }

  // What must hold whenever nothing is under way.
  std::string problem() const {
    const Pairing::Id current = pairing_[kFollower].current();
    if (current == 0) return "no connection is left";
    if (current != pairing_[kArbiter].current()) return "the two sides use different connections";
    for (const auto& [id, c] : connections_) {
      for (const Side side : {kFollower, kArbiter}) {
        if (id == current && c.local[side] != Local::kReady) return "the surviving one is not ready";
        if (id != current && c.local[side] != Local::kClosed) return "another connection is left over";
      }
    }
    return {};
  }
  // Always holds: only a break ends a connection that both sides can use.
  int wrongful_ends = 0;
  int started() const { return static_cast<int>(last_id_); }

 private:
  static Side other(Side side) { return side == kFollower ? kArbiter : kFollower; }

  void finish(Pairing::Id id, Side side) {
    Connection& c = connections_[id];
    const Pairing::Arrival arrival = pairing_[side].arrived(id, side == c.initiator);
    switch (arrival.verdict) {
      case Pairing::Verdict::kOpen:
        open(id, side);
        break;
      case Pairing::Verdict::kHold:
        c.local[side] = Local::kHeld;
        break;
      case Pairing::Verdict::kDrop:
        c.local[side] = Local::kClosed;
        c.to[other(side)].push_back(Frame::kClose);
        break;
    }
    apply(arrival.changes, side);
  }

  void open(Pairing::Id id, Side side) {
    Connection& c = connections_[id];
    c.local[side] = Local::kOpen;
    c.to[other(side)].push_back(Frame::kOpen);
  }

  void close(Pairing::Id id, Side side) {
    Connection& c = connections_[id];
    if (c.local[side] == Local::kClosed) return;
    c.local[side] = Local::kClosed;
    c.to[other(side)].push_back(Frame::kClose);
    apply(pairing_[side].closed(id), side);
  }

  void deliver(Pairing::Id id, Side side) {
    Connection& c = connections_[id];
    const Frame frame = c.to[side].front();
    c.to[side].pop_front();
    switch (frame) {
      case Frame::kOpen:
        c.local[side] = Local::kReady;
        apply(pairing_[side].ready(id), side);
        return;
      case Frame::kClose:
        if (c.local[side] == Local::kReady && breaks_ == breaks_at_start_ &&
            c.local[other(side)] == Local::kClosed)
          ++wrongful_ends;
        close(id, side);
        return;
      case Frame::kPing:
        c.to[other(side)].push_back(Frame::kPong);
        return;
      case Frame::kPong:
        apply(pairing_[side].probed_alive(id), side);
        return;
    }
  }

  void apply(const Pairing::Changes& changes, Side side) {
    if (changes.open != 0) open(changes.open, side);
    if (changes.retire != 0) close(changes.retire, side);
    for (const Pairing::Id id : changes.drop) close(id, side);
    if (changes.probe != 0) connections_[changes.probe].to[other(side)].push_back(Frame::kPing);
  }

  int starts_[2];
  int breaks_;
  const int breaks_at_start_ = breaks_;
  Pairing::Id last_id_ = 0;
  std::map<Pairing::Id, Connection> connections_;
  Pairing pairing_[2] = {Pairing(false), Pairing(true)};
};

void explore(const Model& model, std::uint64_t& ends) {
  const auto events = model.events();
  if (events.empty()) {
    ++ends;
    const std::string problem = model.problem();
    REQUIRE_MESSAGE(problem.empty(), problem);
    REQUIRE(model.wrongful_ends == 0);
    return;
  }
  for (const Model::Event& event : events) {
    Model next = model;
    next.run(event);
    REQUIRE(next.started() < 20);
    explore(next, ends);
  }
}

TEST_CASE(
    "both sides connect at once: in every order exactly one connection survives, and none is taken away") {
  std::uint64_t ends = 0;
  explore(Model(1, 1, 0), ends);
  CHECK(ends > 10);
}

TEST_CASE("one side connects under two names: in every order one connection survives") {
  std::uint64_t ends = 0;
  explore(Model(2, 0, 0), ends);
  explore(Model(0, 2, 0), ends);
  CHECK(ends > 10);
}

TEST_CASE("one connection breaks on one side only: in every order there is one again") {
  std::uint64_t ends = 0;
  explore(Model(1, 0, 1), ends);
  explore(Model(0, 1, 1), ends);
  CHECK(ends > 10);
}

TEST_CASE("many attempts and breaks in random orders always end with one connection") {
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    CAPTURE(seed);
    Rng rng(seed);
    Model model(static_cast<int>(rng.below(4)), static_cast<int>(rng.below(4)),
                static_cast<int>(rng.below(4)));
    for (;;) {
      const auto events = model.events();
      if (events.empty()) break;
      model.run(events[rng.below(events.size())]);
      REQUIRE(model.started() < 40);
    }
    const std::string problem = model.problem();
    REQUIRE_MESSAGE(problem.empty(), problem);
  }
}

}  // namespace
}  // namespace slime::agent
