#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rpc/channel/inbox.h"
#include "tests/rpc/parts_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;

namespace {

constexpr std::uint64_t kTag = 3;

Payload text_payload(std::string_view text) { return Payload(as_bytes(text)); }

// Receives by number, as a channel keeps them, and what they got.
class InboxReceives final : public Inbox::Receives, public Inbox::Reader, public DeliverySource {
 public:
  DeliveryHandler take_receive(Handle receive) override {
    const auto found = waiting.find(receive.index);
    REQUIRE(found != waiting.end());
    DeliveryHandler handler = std::move(found->second);
    waiting.erase(found);
    return handler;
  }
  void read(Handle receive, Inbox::Message&& message) override {
    read_for.push_back(receive);
    lent.push_back(std::move(message));
  }
  void collect_untaken() override {
    for (Untaken& each : std::exchange(untaken, {}))
      inbox.put_back(each.tag, each.number, std::move(each.message));
  }
  void give_back(std::uint64_t tag, std::uint64_t number, Payload&& message) noexcept override {
    untaken.push_back({tag, number, std::move(message)});
  }
  // Asks for the next message. `takes`: else the message goes back.
  Handle receive(bool takes = true) {
    const Handle handle{++last, 1};
    waiting.emplace(handle.index, [this, takes](Result<Delivery> delivery) {
      REQUIRE(delivery.has_value());
      got.emplace_back(as_text(delivery->bytes()));
      if (takes) delivery->take();
    });
    inbox.add_receive(kTag, handle);
    return handle;
  }
  void run() {
    while (!completions.empty()) completions.run_first();
  }
  void arrive(std::string_view text) {
    REQUIRE(inbox.admit(kTag, text.size()).ok());
    inbox.complete(inbox.add(kTag, text.size()), text_payload(text));
  }

  struct Untaken {
    std::uint64_t tag;
    std::uint64_t number;
    Payload message;
  };
  std::uint32_t last = 0;
  std::map<std::uint32_t, DeliveryHandler> waiting;
  std::vector<std::string> got;
  std::vector<Untaken> untaken;
  std::vector<Handle> read_for;
  std::vector<Inbox::Message> lent;
  std::shared_ptr<DeliverySource> source{std::shared_ptr<void>(), this};
  Completions completions{source};
  Inbox inbox{*this, *this, completions, source, {.messages = 3, .bytes = 10}};
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("messages go to receives, both in order, whichever comes first") {
  InboxReceives user;
  CHECK(user.inbox.would_wait(kTag));
  user.arrive("one");
  CHECK(!user.inbox.would_wait(kTag));
  user.receive();
  user.receive();
  CHECK(user.inbox.would_wait(kTag));
  CHECK(user.inbox.awaited(kTag));
  user.arrive("two");
  CHECK(user.got.empty());
  user.run();
  CHECK(user.got == Texts{"one", "two"});
  CHECK(user.inbox.empty());
  CHECK(user.waiting.empty());
}

TEST_CASE("a message that is still to come holds up those behind it, until it is complete or dropped") {
  InboxReceives user;
  const Inbox::Place first = user.inbox.add(kTag, 2);
  user.arrive("b");
  user.receive();
  user.run();
  CHECK(user.got.empty());
  SUBCASE("complete") {
    user.inbox.complete(first, text_payload("a"));
    user.run();
    CHECK(user.got == Texts{"a"});
  }
  SUBCASE("dropped") {
    user.inbox.drop(first);
    user.run();
    CHECK(user.got == Texts{"b"});
  }
}

TEST_CASE("the inbox is bounded in messages and bytes, but takes one of any size, and what is awaited") {
  InboxReceives user;
  CHECK(user.inbox.admit(kTag, 1000).ok());
  user.arrive("12345678");
  CHECK(user.inbox.admit(kTag, 2).ok());
  CHECK(user.inbox.admit(kTag, 3).code() == Code::kResourceExhausted);
  CHECK(user.inbox.admit(kTag + 1, 3).code() == Code::kResourceExhausted);
  user.arrive("");
  user.arrive("");
  CHECK(user.inbox.admit(kTag, 0).code() == Code::kResourceExhausted);
  for (int i = 0; i < 4; ++i) user.receive();
  CHECK(user.inbox.admit(kTag, 1000).ok());
}

TEST_CASE("a message that its receive did not take goes to the next one, before later messages") {
  InboxReceives user;
  user.arrive("a");
  user.arrive("b");
  user.receive(false);
  user.receive();
  user.receive();
  user.run();
  CHECK(user.got == Texts{"a", "a", "b"});
  CHECK(user.inbox.empty());
}

TEST_CASE("a receive that has ended gets nothing") {
  InboxReceives user;
  const Handle ended = user.receive();
  user.receive();
  user.inbox.remove_receive(kTag, ended);
  user.arrive("a");
  user.run();
  CHECK(user.got == Texts{"a"});
  CHECK(user.waiting.size() == 1);
}

TEST_CASE("at the end receives get what has come whole, and the rest is dropped") {
  InboxReceives user;
  user.receive();
  user.arrive("a");
  user.inbox.add(kTag, 5);
  user.inbox.finish_receives();
  user.run();
  CHECK(user.got == Texts{"a"});
  CHECK(!user.inbox.empty());
  user.inbox.drop_incomplete();
  CHECK(user.inbox.empty());
}
