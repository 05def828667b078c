// The credits that a peer gave, and those that it was given, without an endpoint.
#include <doctest/doctest.h>

#include <memory>

#include "transport/endpoint/credit_ledger.h"
#include "transport/endpoint/inbox.h"
#include "transport/soft/pool.h"

namespace slime::transport::testing {
namespace {

using namespace std::chrono_literals;

struct Ledger {
  explicit Ledger(PortOptions options = {}, std::uint32_t own_slots = 0)
      : loop(*Loop::create()), pool(std::make_shared<soft::SoftPool>(loop, options)) {
    auto account = std::make_shared<CreditAccount>();
    REQUIRE(pool->open(*account));
    given = std::make_unique<ReceiveCredits>(*pool, std::move(account), own_slots);
  }
  ~Ledger() {
    pool->close(given->account());
    pool->shut();
  }

  std::shared_ptr<Loop> loop;
  std::shared_ptr<soft::SoftPool> pool;
  std::unique_ptr<ReceiveCredits> given;
};

PortOptions few_credits() {
  PortOptions out;
  out.pool_slots = 64;
  out.base_credits = 8;
  out.max_credits = 16;
  return out;
}

class Hearing final : public Receiver {
 public:
  explicit Hearing(ReceiveCredits& credits) : credits_(credits) {}
  void on_message(Message) noexcept override { ++messages; }
  void on_imm(std::uint32_t imm) noexcept override {
    last_imm = imm;
    if (holds) credits_.hold();
  }
  void on_ready() noexcept override {}
  void on_closed(const Status&) noexcept override {}

  bool holds = false;
  int messages = 0;
  std::uint32_t last_imm = 0;

 private:
  ReceiveCredits& credits_;
};

}  // namespace

TEST_CASE("a grant raises the limit, an old one does nothing, and none may be larger than a pool") {
  SendCredits credits(8);
  CHECK(credits.raise(8) == SendCredits::Raise::kOld);
  CHECK(credits.raise(12) == SendCredits::Raise::kRaised);
  CHECK(credits.raise(11) == SendCredits::Raise::kOld);
  CHECK(credits.raise(12 + limits::kMaxPoolSlots + 1) == SendCredits::Raise::kTooMany);
  CHECK(credits.limit() == 12);
}

TEST_CASE("credits wanted are those of the refused post that needs the fewest") {
  SendCredits credits(8);
  for (int i = 0; i < 8; ++i) credits.use();
  CHECK(credits.free() == 0);
  CHECK(credits.wanted() == 0);
  CHECK_FALSE(credits.wanted_are_free());
  credits.want(credits.message_reserve());
  CHECK(credits.wanted() == limits::kMessageCredits + 1);
  credits.raise(9);
  CHECK_FALSE(credits.wanted_are_free());
  credits.want(0);
  CHECK(credits.wanted_are_free());
  credits.forget_wanted();
  CHECK_FALSE(credits.wanted_are_free());
}

TEST_CASE("credits are kept for messages unless the peer gives few") {
  CHECK(SendCredits(2 * limits::kMessageCredits).message_reserve() == limits::kMessageCredits);
  CHECK(SendCredits(2 * limits::kMessageCredits - 1).message_reserve() == 0);
}

TEST_CASE("spare credits go back once nothing was sent for a while") {
  SendCredits credits(8);
  credits.note_send(TimePoint{} + 1s);
  TimePoint next = kNever;
  CHECK(credits.return_idle(TimePoint{} + 10s, next) == 0);  // none to spare
  credits.raise(12);
  credits.use();
  CHECK(credits.has_spare());
  CHECK(credits.return_idle(credits.idle_at() - 1ns, next) == 0);
  CHECK(next == credits.idle_at());
  CHECK(credits.return_idle(credits.idle_at(), next) == 3);
  CHECK(credits.free() == 8);
  CHECK(credits.used() == 4);
}

TEST_CASE("a peer uses only credits that it was told of") {
  Ledger ledger(few_credits());
  ReceiveCredits& given = *ledger.given;
  for (int i = 0; i < 8; ++i) CHECK(given.receive());
  CHECK_FALSE(given.receive());
  given.grow();
  given.top_up();
  CHECK(given.granted() == 16);
  CHECK(given.unannounced());
  CHECK_FALSE(given.receive());
  CHECK(given.announce() == 16);
  CHECK(given.receive());
  CHECK(given.outstanding() == 7);
}

TEST_CASE("slots of the endpoint's own are promised, and not granted") {
  Ledger ledger(few_credits(), 1);
  CHECK(ledger.given->granted() == 7);
  ledger.given->grow();
  ledger.given->top_up();
  CHECK(ledger.given->granted() == 14);
  CHECK(ledger.given->account().promised == 15);
}

TEST_CASE("a peer gives back what it has, and wants less from then on") {
  Ledger ledger(few_credits());
  ReceiveCredits& given = *ledger.given;
  given.grow();
  given.top_up();
  given.announce();
  CHECK_FALSE(given.take_returned(17));
  CHECK(given.take_returned(8));
  CHECK(given.outstanding() == 8);
  CHECK_FALSE(given.low());
  given.top_up();
  CHECK(given.granted() == 16);  // what it has is its target again
}

TEST_CASE("a held notification keeps its credit, and another one is promised besides") {
  Ledger ledger(few_credits());
  ReceiveCredits& given = *ledger.given;
  Inbox inbox(given);
  Hearing hearing(given);
  CHECK(given.receive());
  inbox.deliver(1);  // kept: there is no receiver yet
  hearing.holds = true;
  inbox.set_receiver(hearing);
  CHECK(given.account().promised == 8);
  inbox.deliver_kept();
  CHECK(hearing.last_imm == 1);
  CHECK(given.account().promised == 8);
  given.top_up();
  CHECK(given.granted() == 9);
  hearing.holds = false;
  CHECK(given.receive());
  inbox.deliver(2);
  CHECK(given.account().promised == 8);
  given.release(5);  // only one is held
  CHECK(given.account().promised == 7);
}

TEST_CASE("after the end a notification gives no credit back") {
  Ledger ledger(few_credits());
  Hearing hearing(*ledger.given);
  Inbox inbox(*ledger.given);
  inbox.set_receiver(hearing);
  ledger.given->end();
  inbox.deliver(3);
  CHECK(hearing.last_imm == 3);
  CHECK(ledger.given->account().promised == 8);
  CHECK(inbox.drop_receiver() == &hearing);
  CHECK(inbox.receiver() == nullptr);
}

}  // namespace slime::transport::testing
