#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/str.h"
#include "tests/rpc/channel_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

ByteVector text(std::string_view t) {
  const Bytes bytes = as_bytes(t);
  return {bytes.begin(), bytes.end()};
}

std::string text_of(const Reply& reply) {
  REQUIRE_MESSAGE(reply.value->has_value(), reply.status().to_string());
  return std::string(as_text((*reply.value)->bytes()));
}

}  // namespace

TEST_CASE("a message waits for its receive, and a receive for its message") {
  SimFixture sim(kSeed);
  Link link(sim);
  Done sent;
  link.a().send(7, text("early"), link.in(5s), sent.handler());
  REQUIRE(link.until([&] { return sent.done(); }));
  CHECK(sent.status.ok());
  CHECK(!link.b().idle());
  Reply early;
  link.b().recv(7, link.in(5s), early.receiver());
  CHECK(!early.done());
  REQUIRE(link.until([&] { return early.done(); }));
  CHECK(text_of(early) == "early");

  Reply late;
  link.b().recv(7, link.in(5s), late.receiver());
  sim.settle();
  CHECK(!late.done());
  Done sent_late;
  link.a().send(7, text("late"), link.in(5s), sent_late.handler());
  REQUIRE(link.until([&] { return late.done() && sent_late.done(); }));
  CHECK(text_of(late) == "late");
  CHECK(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE(
    "messages of a tag come in the order they were sent, large ones too; tags do not wait for each other") {
  SimFixture sim(kSeed);
  Link link(sim);
  std::vector<std::unique_ptr<Done>> sent;
  const std::size_t sizes[] = {10, 200'000, 20, 9'000, 30};
  for (const std::size_t size : sizes) {
    sent.push_back(std::make_unique<Done>());
    link.a().send(1, pattern(size, size), link.in(20s), sent.back()->handler());
  }
  sent.push_back(std::make_unique<Done>());
  link.a().send(2, text("other"), link.in(20s), sent.back()->handler());
  Reply other;
  link.b().recv(2, link.in(20s), other.receiver());
  REQUIRE(link.until([&] { return other.done(); }));
  CHECK(text_of(other) == "other");
  for (const std::size_t size : sizes) {
    Reply reply;
    link.b().recv(1, link.in(20s), reply.receiver());
    REQUIRE(link.until([&] { return reply.done(); }));
    REQUIRE(reply.value->has_value());
    const ByteVector expected = pattern(size, size);
    CHECK(std::equal(expected.begin(), expected.end(), (*reply.value)->bytes().begin(),
                     (*reply.value)->bytes().end()));
  }
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  for (const auto& done : sent) CHECK(done->status.ok());
}

TEST_CASE("receives of a tag are served in the order they were asked") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply replies[3];
  for (Reply& reply : replies) link.b().recv(5, link.in(20s), reply.receiver());
  for (const char* const t : {"one", "two", "three"}) link.a().send(5, text(t), link.in(20s), [](Status) {});
  REQUIRE(link.until([&] { return replies[2].done(); }));
  CHECK(text_of(replies[0]) == "one");
  CHECK(text_of(replies[1]) == "two");
  CHECK(text_of(replies[2]) == "three");
}

TEST_CASE("a receive ends at its deadline or when cancelled, and loses no message") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply timed_out, cancelled, kept;
  link.b().recv(5, link.in(1s), timed_out.receiver());
  const auto ticket = link.b().recv(5, link.in(20s), cancelled.receiver());
  link.b().recv(5, link.in(20s), kept.receiver());
  link.b().cancel(ticket);
  REQUIRE(link.until([&] { return timed_out.done() && cancelled.done(); }));
  CHECK(timed_out.status().code() == Code::kDeadlineExceeded);
  CHECK(!timed_out.status().maybe_executed());
  CHECK(cancelled.status().code() == Code::kCancelled);
  link.a().send(5, text("x"), link.in(20s), [](Status) {});
  REQUIRE(link.until([&] { return kept.done(); }));
  CHECK(text_of(kept) == "x");
}

TEST_CASE("deliveries that are not taken go back to the front of their tag, in order of arrival") {
  SimFixture sim(kSeed);
  Link link(sim);
  for (const char* const t : {"one", "two", "three"}) link.a().send(5, text(t), link.in(20s), [](Status) {});
  std::vector<Delivery> held;
  for (int i = 0; i < 2; ++i)
    link.b().recv(5, link.in(20s), [&](Result<Delivery> message) { held.push_back(std::move(*message)); });
  REQUIRE(link.until([&] { return held.size() == 2; }));
  CHECK(as_text(held[1].bytes()) == "two");
  SUBCASE("the first one first") { held.clear(); }
  SUBCASE("the last one first") {
    held.pop_back();
    held.clear();
  }
  Reply replies[3];
  for (Reply& reply : replies) link.b().recv(5, link.in(20s), reply.receiver());
  REQUIRE(link.until([&] { return replies[2].done(); }));
  CHECK(text_of(replies[0]) == "one");
  CHECK(text_of(replies[1]) == "two");
  CHECK(text_of(replies[2]) == "three");
  CHECK(link.b().counters().receives_given_back == 2);
}

TEST_CASE("a receive that waits gets what another one gives back") {
  SimFixture sim(kSeed);
  Link link(sim);
  std::optional<Delivery> held;
  Reply waiting;
  link.b().recv(5, link.in(20s), [&](Result<Delivery> message) { held.emplace(std::move(*message)); });
  link.b().recv(5, link.in(20s), waiting.receiver());
  link.a().send(5, ByteVector(100'000, std::byte{1}), link.in(20s), [](Status) {});
  REQUIRE(link.until([&] { return held.has_value(); }));
  CHECK_FALSE(waiting.done());
  held.reset();
  REQUIRE(link.until([&] { return waiting.done(); }));
  CHECK(waiting.status().ok());
  CHECK(link.b().counters().receives_given_back == 1);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE("a delivery may outlive its channel; what it gives back then is dropped") {
  SimFixture sim(kSeed);
  Link link(sim);
  std::optional<Delivery> held;
  link.b().recv(5, link.in(20s), [&](Result<Delivery> message) { held.emplace(std::move(*message)); });
  link.a().send(5, text("late"), link.in(20s), [](Status) {});
  REQUIRE(link.until([&] { return held.has_value(); }));
  link.a().reset(Status(Code::kUnavailable, "the test ends it"));
  REQUIRE(link.until([&] { return link.b().closed(); }));
  CHECK(as_text(held->bytes()) == "late");
  held.reset();
}

TEST_CASE("a full inbox refuses, by number and by bytes, and takes more once there is room") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.b.inbox_messages = 3;
  options.b.inbox_bytes = 1000;
  Link link(sim, options);
  const auto send = [&](std::uint64_t tag, std::size_t size) {
    Done done;
    link.a().send(tag, pattern(size), link.in(20s), done.handler());
    REQUIRE(link.until([&] { return done.done(); }));
    return done.status;
  };
  const auto take = [&](std::uint64_t tag) {
    Reply reply;
    link.b().recv(tag, link.in(20s), reply.receiver());
    REQUIRE(link.until([&] { return reply.done(); }));
    return reply.value->has_value() ? (*reply.value)->bytes().size() : 0;
  };
  CHECK(send(1, 600).ok());
  const Status bytes = send(1, 600);
  CHECK(bytes.code() == Code::kResourceExhausted);
  CHECK(!bytes.maybe_executed());
  const Status large = send(1, 60'000);
  CHECK(large.code() == Code::kResourceExhausted);
  CHECK(send(1, 1).ok());
  CHECK(send(2, 1).ok());
  CHECK(send(3, 0).code() == Code::kResourceExhausted);
  CHECK(take(1) == 600);
  CHECK(send(3, 0).ok());
  CHECK(take(1) == 1);
  CHECK(take(2) == 1);
  CHECK(take(3) == 0);
  // A message that is larger than the inbox gets in alone. A message with a waiting receive gets
  // in, too.
  CHECK(send(4, 60'000).ok());
  CHECK(send(1, 1).code() == Code::kResourceExhausted);
  Reply waiting;
  link.b().recv(9, link.in(20s), waiting.receiver());
  CHECK(send(9, 70'000).ok());
  REQUIRE(link.until([&] { return waiting.done(); }));
  CHECK((*waiting.value)->bytes().size() == 70'000);
  CHECK(take(4) == 60'000);
  CHECK(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE("messages that nobody takes hold no credits") {
  SimFixture sim(kSeed);
  Link link(sim, with_credits(2, 2));
  std::vector<std::unique_ptr<Done>> sent;
  for (int i = 0; i < 50; ++i) {
    sent.push_back(std::make_unique<Done>());
    link.a().send(1, text(str(i)), link.in(20s), sent.back()->handler());
  }
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
  REQUIRE(
      link.until([&] { return std::all_of(sent.begin(), sent.end(), [](auto& d) { return d->done(); }); }));
  for (const auto& done : sent) CHECK(done->status.ok());
}
