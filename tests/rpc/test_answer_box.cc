#include <doctest/doctest.h>

#include <memory>
#include <utility>
#include <vector>

#include "rpc/channel/answer_box.h"
#include "tests/rpc/channel_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;

namespace {

constexpr std::size_t kLargeBytes = 100;
constexpr std::uint64_t kBudget = 4000;  // of the process; the share of a connection is a quarter
constexpr Handle kFirst{1, 1};
constexpr Handle kSecond{2, 1};

// A box over a host that records its calls.
struct AnswerBoxTest final : AnswerBox::Host {
  ~AnswerBoxTest() { box->close(); }
  void take_answers() override {
    ++taken;
    AnswerBox::Waiting now = box->take();
    for (AnswerBox::Answer& answer : now.answers) answers.push_back(std::move(answer));
    streams.insert(streams.end(), now.streams.begin(), now.streams.end());
    for (AnswerBox::GivenBack& message : now.messages) given_back.push_back(message.number);
  }
  void send_answer(Handle served, Result<ByteVector>&&) override { sent.push_back(served.packed()); }
  void attend_user(std::uint64_t key) override { attended.push_back(key); }
  void on_granted(Handle served) override { granted.push_back(served.packed()); }

  SimFixture sim{kSeed};
  std::shared_ptr<Account> account = std::make_shared<Account>(kBudget);
  std::shared_ptr<AnswerBox> box =
      std::make_shared<AnswerBox>(sim.loop(0), static_cast<AnswerBox::Host*>(this), account, kLargeBytes);
  int taken = 0;
  std::vector<AnswerBox::Answer> answers;
  std::vector<std::uint64_t> streams;
  std::vector<std::uint64_t> given_back;
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> attended;
  std::vector<std::uint64_t> granted;
};

}  // namespace

TEST_CASE("the first item in an empty box calls the host, which takes everything") {
  AnswerBoxTest test;
  test.box->respond(kFirst.packed(), pattern(5));
  test.box->respond(kSecond.packed(), Status(Code::kAborted, "no"));
  test.box->attend(7);
  test.box->give_back(3, 11, Payload());
  CHECK(test.taken == 0);
  test.sim.settle();
  CHECK(test.taken == 1);
  REQUIRE(test.answers.size() == 2);
  CHECK(test.answers[0].served == kFirst);
  CHECK(test.answers[1].reply.status().code() == Code::kAborted);
  CHECK(test.streams == std::vector<std::uint64_t>{7});
  CHECK(test.given_back == std::vector<std::uint64_t>{11});
  CHECK(test.box->given_back() == 1);
  test.box->attend(8);
  test.sim.settle();
  CHECK(test.taken == 2);
}

TEST_CASE("answers and streams of a handler on the loop reach the host at once") {
  AnswerBoxTest test;
  {
    const AnswerBox::AtOnce at_once(*test.box);
    test.box->respond(kFirst.packed(), pattern(5));
    test.box->attend(7);
  }
  CHECK(test.sent == std::vector<std::uint64_t>{kFirst.packed()});
  CHECK(test.attended == std::vector<std::uint64_t>{7});
  test.box->respond(kSecond.packed(), pattern(5));
  test.sim.settle();
  CHECK(test.sent.size() == 1);
  CHECK(test.answers.size() == 1);
}

TEST_CASE("a granted place is told on the loop") {
  AnswerBoxTest test;
  test.box->granted(kFirst.packed());
  CHECK(test.granted.empty());
  test.sim.settle();
  CHECK(test.granted == std::vector<std::uint64_t>{kFirst.packed()});
}

TEST_CASE("the account is asked for large answers only, and its refusal drops their bytes") {
  AnswerBoxTest test;
  test.box->respond(kFirst.packed(), pattern(kLargeBytes));
  CHECK(test.account->held() == 0);
  test.box->respond(kFirst.packed(), pattern(kLargeBytes + 1));
  CHECK(test.account->held() == kLargeBytes + 1);
  test.box->respond(kSecond.packed(), pattern(kBudget));
  test.sim.settle();
  REQUIRE(test.answers.size() == 3);
  CHECK(test.answers[1].held.bytes() == kLargeBytes + 1);
  CHECK(test.answers[2].refused_bytes == kBudget);
  CHECK(test.answers[2].reply->empty());
}

TEST_CASE("a cancel runs the tasks of its request once, and close() cancels the others") {
  AnswerBoxTest test;
  int first = 0;
  int second = 0;
  test.box->on_cancel(kFirst.packed(), [&] { ++first; });
  test.box->on_cancel(kSecond.packed(), [&] { ++second; });
  test.box->cancel(kFirst.packed());
  CHECK(first == 1);
  CHECK(test.box->cancelled(kFirst.packed(), kNever));
  CHECK(!test.box->cancelled(kSecond.packed(), kNever));
  test.box->on_cancel(kFirst.packed(), [&] { ++first; });
  CHECK(first == 2);
  CHECK(test.box->take_notes(kFirst.packed()).cancelled);
  test.box->close();
  CHECK(first == 2);
  CHECK(second == 1);
  CHECK(test.box->cancelled(kSecond.packed(), kNever));
}

TEST_CASE("a closed box drops what comes, and calls no host") {
  AnswerBoxTest test;
  test.box->respond(kFirst.packed(), pattern(5));
  test.box->close();
  test.box->respond(kSecond.packed(), pattern(5));
  test.box->granted(kSecond.packed());
  test.box->attend(7);
  test.sim.settle();
  CHECK(test.taken == 0);
  CHECK(test.granted.empty());
  CHECK(test.box->take().answers.empty());
}
