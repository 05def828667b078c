// The credits of a verbs connection and its wake-ups, without an endpoint.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>

#include "transport/loop.h"
#include "transport/verbs/credit_book.h"

namespace slime::transport::testing::verbs_credit_book_test {
namespace {

using namespace std::chrono_literals;
using verbs::CreditBook;
using verbs::MessageNote;

constexpr std::uint32_t kBase = 8;

PortOptions some_credits() {
  PortOptions out;
  out.pool_slots = 256;
  out.base_credits = kBase;
  out.max_credits = 64;
  return out;
}

class PlainPool final : public ReceivePool {
 public:
  explicit PlainPool(std::shared_ptr<Loop> loop) : ReceivePool(std::move(loop), some_credits(), kBase + 1) {}

 private:
  void put_free(ReceiveSlot&) override {}
};

struct Book {
  Book() : pool(std::make_shared<PlainPool>(*Loop::create())), account(std::make_shared<CreditAccount>()) {
    REQUIRE(pool->open(*account));
    credits = std::make_unique<CreditBook>(kBase, *pool, account);
  }
  ~Book() {
    pool->close(*account);
    pool->shut();
  }
  void use_all() {
    while (credits->ours.free() > 0) credits->ours.use();
  }

  std::shared_ptr<PlainPool> pool;
  std::shared_ptr<CreditAccount> account;
  std::unique_ptr<CreditBook> credits;
};

}  // namespace

TEST_CASE("one slot is kept for the peer's control message") {
  Book book;
  CHECK(book.credits->given.granted() == kBase);
  CHECK(book.account->promised == kBase + 1);
}

TEST_CASE("only the message with the last credit, behind which none waits, says that this side is starved") {
  Book book;
  CHECK_FALSE(book.credits->next_note(true).starved);
  book.use_all();
  CHECK_FALSE(book.credits->next_note(false).starved);
  const MessageNote note = book.credits->next_note(true);
  CHECK(note.starved);
  CHECK_FALSE(note.control);
  CHECK(note.granted == kBase);
  // Until the peer answers it is not told again.
  CHECK(book.credits->starved());
  CHECK_FALSE(book.credits->next_note(true).starved);
  CHECK_FALSE(book.credits->starve());
  book.credits->woken();
  CHECK_FALSE(book.credits->starved());
  CHECK(book.credits->starve());
}

TEST_CASE("a starved peer is woken by the first message that brings more than it knows of") {
  Book book;
  CHECK_FALSE(book.credits->wakes_peer());
  REQUIRE(book.credits->peer_starves(kBase));
  CHECK(book.credits->peer_starved());
  CHECK_FALSE(book.credits->wakes_peer());
  CHECK_FALSE(book.credits->next_note(true).woken);
  CHECK(book.credits->peer_starved());
  // It gets twice as many as before.
  book.credits->given.top_up();
  CHECK(book.credits->given.granted() == 2 * kBase);
  CHECK(book.credits->wakes_peer());
  CHECK(book.credits->control_note().control);
  const MessageNote note = book.credits->next_note(true);
  CHECK(note.woken);
  CHECK(note.granted == 2 * kBase);
  CHECK_FALSE(book.credits->peer_starved());
  CHECK_FALSE(book.credits->next_note(true).woken);
}

TEST_CASE("a peer cannot be starved of more than it was granted") {
  Book book;
  CHECK_FALSE(book.credits->peer_starves(kBase + 1));
  CHECK_FALSE(book.credits->peer_starved());
}

TEST_CASE("a grant is due without a message once the peer has half of its target left") {
  Book book;
  ReceiveCredits& given = book.credits->given;
  CHECK_FALSE(book.credits->grant_due());
  for (std::uint32_t i = 0; i < kBase / 2; ++i) REQUIRE(given.receive());
  CHECK_FALSE(book.credits->grant_due());  // nothing new was granted
  given.take_back(kBase / 2);
  given.top_up();
  CHECK(book.credits->grant_due());
  const TimePoint now = TimePoint{} + 1h;
  book.credits->announce_alone(now);
  CHECK_FALSE(book.credits->grant_due());
  CHECK(given.outstanding() == kBase);
  // A second grant soon after the first doubles the target.
  book.credits->announce_alone(now + limits::kCreditIdle / 2);
  given.top_up();
  CHECK(given.outstanding() == kBase);
  CHECK(book.account->promised == 2 * kBase + 1);
}

TEST_CASE("grants that are far apart leave the target as it is") {
  Book book;
  const TimePoint now = TimePoint{} + 1h;
  book.credits->announce_alone(now);
  book.credits->announce_alone(now + limits::kCreditIdle);
  book.credits->given.top_up();
  CHECK(book.account->promised == kBase + 1);
}

}  // namespace slime::transport::testing::verbs_credit_book_test
