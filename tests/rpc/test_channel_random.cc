#include <doctest/doctest.h>

#include <cstdlib>
#include <deque>

#include "base/str.h"
#include "tests/rpc/channel_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

// Does random things on a link and checks what must hold whatever happens: every handler is called
// once, an answer is the right one, messages of a tag keep their order, and in the end nothing is
// left.
class Chaos {
 public:
  Chaos(std::uint64_t seed, bool faults) : rng_(seed), faults_(faults), sim_(seed) {
    LinkOptions options;
    options.port.base_credits = 1 + static_cast<std::uint32_t>(rng_.below(8));
    options.port.max_credits = options.port.base_credits + static_cast<std::uint32_t>(rng_.below(8));
    options.port.slot_bytes = 256 << rng_.below(4);
    options.a.inbox_messages = options.b.inbox_messages = 1 + rng_.below(20);
    options.a.queue_bytes = options.b.queue_bytes = 2000 + rng_.below(50'000);
    link_ = std::make_unique<Link>(sim_, options);
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      act();
      for (std::uint64_t n = rng_.below(6); n > 0; --n) sim_.step();
    }
    sim_.thaw_b(link_->pair);
    for (Request& request : link_->held) request.reply(encode_value(0));
    link_->held.clear();
    if (!faults_) {
      // Whatever happened, nothing is stuck: the next call works in both directions.
      Reply there, back;
      link_->a().call({"test", "raw", link_->in(20s)}, pattern(5000), there.handler());
      link_->b().call({"test", "raw", link_->in(20s)}, pattern(5000), back.handler());
      REQUIRE(link_->until([&] { return there.done() && back.done(); }));
      CHECK_MESSAGE(there.value->has_value(), there.status().to_string());
      CHECK_MESSAGE(back.value->has_value(), back.status().to_string());
    }
    link_->a().close(5s);
    REQUIRE(link_->until([&] { return link_->owners[0].closed == 1 && link_->owners[1].closed == 1; }));
    link_->held.clear();
    sim_.settle();
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      CAPTURE(i);
      CAPTURE(asked_.size());
      CAPTURE(asked_[i].what);
      CHECK(asked_[i].calls == 1);
    }
    CHECK(link_->owners[0].ready == 1);
    for (int side = 0; side < 2; ++side) {
      CHECK(channel(side).counters().lent_buffers == 0);
      CHECK(channel(side).counters().calls_in_flight == 0);
      CHECK(channel(side).counters().queued_frames == 0);
    }
  }
  [[nodiscard]] int good() const { return good_; }

 private:
  struct Asked {
    int calls = 0;
    const char* what = "";
    Ticket ticket;
    int side = 0;
  };

  Channel& channel(int side) { return *link_->channels[static_cast<std::size_t>(side)]; }
  TimePoint deadline() { return sim_.now() + Nanos(static_cast<std::int64_t>(rng_.below(30'000'000)) + 1); }
  std::size_t some_size() { return rng_.chance(1, 4) ? rng_.below(100'000) : rng_.below(500); }

  void act() {
    const int side = static_cast<int>(rng_.below(2));
    switch (rng_.below(faults_ ? 12 : 9)) {
      case 0:
      case 1:
      case 2:
        return call(side, "raw");
      case 3:
        return call(side, "hold");
      case 4:
        return send(side);
      case 5:
        return receive(side);
      case 6:
        if (!asked_.empty()) {
          const Asked& some = asked_[rng_.below(asked_.size())];
          channel(some.side).cancel(some.ticket);
        }
        return;
      case 7:
        return answer_one();
      case 8:
        return ping(side);
      case 9:
        if (rng_.chance(1, 2))
          sim_.freeze_b(link_->pair);
        else
          sim_.thaw_b(link_->pair);
        return;
      case 10:
        if (rng_.chance(1, 40)) channel(side).close(Nanos(static_cast<std::int64_t>(rng_.below(5'000'000))));
        return;
      default:
        if (rng_.chance(1, 80)) sim_.cut(link_->pair);
        return;
    }
  }
  Asked& ask(int side, const char* what) {
    asked_.push_back({});
    asked_.back().what = what;
    asked_.back().side = side;
    return asked_.back();
  }
  void call(int side, std::string_view method) {
    Asked& asked = ask(side, "call");
    const std::size_t size = some_size();
    const std::uint64_t seed = rng_.next();
    const bool echo = method == "raw";
    asked.ticket = channel(side).call(
        {"test", method, deadline()}, pattern(size, seed),
        [this, &asked, size, seed, echo](Result<Payload> reply) {
          ++asked.calls;
          if (!reply || !echo) return;
          ++good_;
          const ByteVector expected = pattern(size, seed);
          CHECK(std::equal(expected.begin(), expected.end(), reply->bytes().begin(), reply->bytes().end()));
        });
    CHECK(asked.calls == 0);
  }
  void send(int side) {
    Asked& asked = ask(side, "send");
    const std::uint64_t tag = rng_.below(3);
    ByteVector body = pattern(8 + some_size());
    const std::uint64_t number = ++numbers_;
    std::memcpy(body.data(), &number, sizeof number);
    asked.ticket = channel(side).send(tag, std::move(body), deadline(), [&asked](Status) { ++asked.calls; });
    CHECK(asked.calls == 0);
  }
  void receive(int side) {
    Asked& asked = ask(side, "receive");
    const std::uint64_t tag = rng_.below(3);
    asked.ticket = channel(side).recv(tag, deadline(), [this, &asked, side, tag](Result<Delivery> delivery) {
      ++asked.calls;
      if (!delivery) return;
      const Payload message = delivery->take();
      std::uint64_t number = 0;
      REQUIRE(message.bytes().size() >= sizeof number);
      std::memcpy(&number, message.bytes().data(), sizeof number);
      std::uint64_t& last = last_number_[side][tag];
      CHECK(number > last);
      last = number;
    });
    CHECK(asked.calls == 0);
  }
  void ping(int side) {
    Asked& asked = ask(side, "ping");
    asked.ticket = channel(side).ping(deadline(), [&asked](Status) { ++asked.calls; });
    CHECK(asked.calls == 0);
  }
  void answer_one() {
    if (link_->held.empty()) return;
    Request request = std::move(link_->held.back());
    link_->held.pop_back();
    if (rng_.chance(1, 3)) {
      request.fail(Status(Code::kInternal, "random"));
    } else if (rng_.chance(1, 2)) {
      request.reply(pattern(some_size()));
    }  // else it is dropped
  }

  Rng rng_;
  const bool faults_;
  SimFixture sim_;
  std::unique_ptr<Link> link_;
  std::deque<Asked> asked_;
  std::uint64_t numbers_ = 0;
  std::uint64_t last_number_[2][3] = {};
  int good_ = 0;
};

std::uint64_t first_seed() {
  const char* text = std::getenv("SLIME_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

}  // namespace

TEST_CASE("random use, each outcome once and right") {
  int good = 0;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + 40; ++seed) {
    CAPTURE(seed);
    Chaos chaos(seed, false);
    chaos.run(400);
    good += chaos.good();
  }
  CHECK(good > 40);  // not all of them timed out
}

TEST_CASE("random use with closes and lost connections") {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + 60; ++seed) {
    CAPTURE(seed);
    Chaos(seed, true).run(400);
  }
}
