#include <doctest/doctest.h>

#include "base/str.h"
#include "tests/rpc/channel_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

TEST_CASE("a call goes there and back, in both directions at once") {
  SimFixture sim(kSeed);
  Link link(sim);
  CHECK(link.a().ready());
  Reply there, back;
  link.a().call({"test", "add", link.in(5s)}, encode_arguments(2, 3), there.handler());
  link.b().call({"test", "peer", link.in(5s)}, encode_arguments(), back.handler());
  REQUIRE(link.until([&] { return there.done() && back.done(); }));
  CHECK(value_of<int>(*there.value) == 5);
  CHECK(value_of<std::string>(*back.value) == "b");
  CHECK(link.a().counters().calls == 1);
  CHECK(link.a().counters().requests == 1);
  CHECK(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE("a connection that has called a service finds what took its place, and keeps nothing of it") {
  SimFixture sim(kSeed);
  Link link(sim);
  const auto add = [&](int answer, std::shared_ptr<int> kept) {
    Service service("changing");
    REQUIRE(service.add("get", [answer, kept] { return answer; }, {Run::kInline}).ok());
    REQUIRE(link.servers[1]->add(service).ok());
  };
  const auto get = [&] { return link.call_raw("changing", "get", encode_arguments()); };
  const auto kept = std::make_shared<int>();
  add(1, kept);
  CHECK(value_of<int>(get()) == 1);
  CHECK(value_of<int>(get()) == 1);
  REQUIRE(link.servers[1]->remove("changing").ok());
  CHECK(kept.use_count() == 1);
  CHECK(get().status().code() == Code::kNotFound);
  add(2, nullptr);
  CHECK(value_of<int>(get()) == 2);
}

TEST_CASE("calls that were made before the peer's hello came wait for it") {
  SimFixture sim(kSeed);
  LinkOptions options;
  sim.open(options.port);
  auto pair = sim.connect();
  REQUIRE(pair.has_value());
  Server server;
  Service service("s");
  REQUIRE(service.add("one", [] { return 1; }, {Run::kInline}).ok());
  REQUIRE(server.add(service).ok());
  Owner owner_a, owner_b;
  auto a =
      Channel::create(sim.loop(0), sim.device(0), std::move(pair->a), nullptr, owner_a, {.peer_name = "b"});
  Reply reply;
  a->call({"s", "one", sim.now() + 5s}, encode_arguments(), reply.handler());
  CHECK(!a->ready());
  auto b =
      Channel::create(sim.loop(1), sim.device(1), std::move(pair->b), &server, owner_b, {.peer_name = "a"});
  REQUIRE(sim.until([&] { return reply.done(); }));
  CHECK(value_of<int>(*reply.value) == 1);
  CHECK(a->ready());
  a.reset();
  b.reset();
  sim.settle();
}

TEST_CASE("errors of handlers travel with code and text, and say that they were executed") {
  SimFixture sim(kSeed);
  Link link(sim);
  for (int code = 1; code < kCodeCount; ++code) {
    const Status status = link.call("fail", code, str("text ", code)).status();
    CHECK(status.code() == static_cast<Code>(code));
    CHECK(status.text() == str("text ", code));
    CHECK(status.maybe_executed());
  }
  CHECK(link.a().counters().calls_failed == kCodeCount - 1);
  const std::string long_text(3000, 'x');
  CHECK(link.call("fail", 3, long_text).status().text() == long_text.substr(0, rpc::limits::kErrorTextBytes));
}

TEST_CASE("an error text is not cut inside a character") {
  SimFixture sim(kSeed);
  Link link(sim);
  std::string text = "x";
  while (text.size() < 1100) text += "ü";
  const std::string cut = link.call("fail", 3, text).status().text();
  CHECK(cut.size() == rpc::limits::kErrorTextBytes - 1);
  CHECK(text.starts_with(cut));
}

TEST_CASE("unknown service, unknown method, bad arguments and no server: four answers, nothing executed") {
  SimFixture sim(kSeed);
  Link link(sim);
  const Status service = link.call_raw("nope", "add", encode_arguments(1, 2)).status();
  CHECK(service.code() == Code::kNotFound);
  CHECK(service.text() == "no service 'nope'");
  const Status method = link.call("nope").status();
  CHECK(method.code() == Code::kNotFound);
  CHECK(method.text().starts_with("service 'test' has no method 'nope'; it has: "));
  const Status arguments = link.call("add", "x", 1).status();
  CHECK(arguments.code() == Code::kInvalidArgument);
  CHECK(arguments.text() == "bad arguments for test.add: argument 1 is a string, expected int");
  const Status garbage = link.call_raw("test", "add", pattern(9)).status();
  CHECK(garbage.code() == Code::kInvalidArgument);
  const Status empty = link.call_raw("", "add", {}).status();
  CHECK(empty.code() == Code::kInvalidArgument);
  SimFixture other(kSeed);
  LinkOptions without_server;
  without_server.serve = false;
  Link bare(other, without_server);
  const Status none = bare.call("add", 1, 2).status();
  CHECK(none.code() == Code::kNotFound);
  for (const Status& status : {service, method, arguments, garbage, empty, none})
    CHECK(!status.maybe_executed());
}

TEST_CASE("a removed service is not found, and another of its name gets the calls") {
  SimFixture sim(kSeed);
  Link link(sim);
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
  REQUIRE(link.servers[1]->remove("test").ok());
  CHECK(link.call("add", 1, 2).status().text() == "no service 'test'");
  Service again("test");
  REQUIRE(again.add("other", [] { return 0; }, {Run::kInline}).ok());
  REQUIRE(again.add("add", [](int x, int y) { return x * y; }, {Run::kInline}).ok());
  REQUIRE(link.servers[1]->add(again).ok());
  CHECK(value_of<int>(link.call("add", 5, 6)) == 30);
}

TEST_CASE("a request that a handler drops is answered") {
  SimFixture sim(kSeed);
  Link link(sim);
  const Status status = link.call("drop").status();
  CHECK(status.code() == Code::kInternal);
  CHECK(status.maybe_executed());
}

TEST_CASE("a deadline ends a call at once; the late answer is dropped and counted") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply late;
  const TimePoint deadline = link.in(1s);
  link.a().call({"test", "hold", deadline}, encode_arguments(), late.handler());
  REQUIRE(link.until([&] { return late.done(); }));
  CHECK(late.status().code() == Code::kDeadlineExceeded);
  CHECK(late.status().maybe_executed());
  CHECK(sim.now() >= deadline);
  CHECK(link.a().counters().calls_in_flight == 0);
  // The deadline travelled: clocks are the same here, so only the way there is lost.
  REQUIRE(link.held.size() == 1);
  CHECK(link.held[0].info().deadline >= deadline);
  CHECK(link.held[0].info().deadline < deadline + 10ms);
  // The slot of the call is in use again when the late answer comes.
  Reply next;
  link.a().call({"test", "hold", link.in(20s)}, encode_arguments(), next.handler());
  REQUIRE(link.until([&] { return link.held.size() == 2; }));
  link.held[0].reply(encode_value(1));
  REQUIRE(link.until([&] { return link.a().counters().stale_replies == 1; }));
  CHECK(!next.done());
  link.held[1].reply(encode_value(2));
  REQUIRE(link.until([&] { return next.done(); }));
  CHECK(value_of<int>(*next.value) == 2);
  CHECK(late.calls == 1);
}

TEST_CASE("many deadlines end in their order") {
  SimFixture sim(kSeed);
  Link link(sim);
  std::vector<int> order;
  for (const int seconds : {3, 1, 2}) {
    link.a().call({"test", "hold", link.in(std::chrono::seconds(seconds))}, encode_arguments(),
                  [&order, seconds](Result<Payload> result) {
                    CHECK(result.status().code() == Code::kDeadlineExceeded);
                    order.push_back(seconds);
                  });
  }
  REQUIRE(link.until([&] { return order.size() == 3; }));
  CHECK(order == std::vector<int>{1, 2, 3});
  link.held.clear();
}

TEST_CASE("a deadline that has passed before the call was made costs no message") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply reply;
  const auto ticket = link.a().call({"test", "add", sim.now()}, encode_arguments(1, 2), reply.handler());
  CHECK(ticket.value == 0);
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().code() == Code::kDeadlineExceeded);
  CHECK(!reply.status().maybe_executed());
  sim.settle();
  CHECK(link.b().counters().requests == 0);
}

TEST_CASE("a cancelled call ends once, and never inside cancel()") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply reply;
  const auto ticket = link.a().call({"test", "hold", link.in(20s)}, encode_arguments(), reply.handler());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  link.a().cancel(ticket);
  CHECK(!reply.done());
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().code() == Code::kCancelled);
  CHECK(reply.status().text() == "its caller cancelled it");
  CHECK(reply.status().maybe_executed());
  link.a().cancel(ticket);
  link.a().cancel({});
  link.held[0].reply(encode_value(1));
  REQUIRE(link.until([&] { return link.a().counters().stale_replies == 1; }));
  CHECK(reply.calls == 1);
}

TEST_CASE("many more calls than credits all get through, each once") {
  SimFixture sim(kSeed);
  Link link(sim, with_credits(2, 4));
  constexpr int kCalls = 500;
  std::vector<std::unique_ptr<Reply>> replies;
  for (int i = 0; i < kCalls; ++i) {
    replies.push_back(std::make_unique<Reply>());
    Channel& channel = i % 2 == 0 ? link.a() : link.b();
    channel.call({"test", "add", link.in(20s)}, encode_arguments(i, 1), replies.back()->handler());
  }
  CHECK(link.a().counters().queued_frames > 0);
  REQUIRE(link.until(
      [&] { return std::all_of(replies.begin(), replies.end(), [](auto& r) { return r->done(); }); }));
  for (int i = 0; i < kCalls; ++i) {
    CHECK(replies[static_cast<std::size_t>(i)]->calls == 1);
    CHECK(value_of<int>(*replies[static_cast<std::size_t>(i)]->value) == i + 1);
  }
}

TEST_CASE("replies that nobody has looked at hold no credits of the peer") {
  SimFixture sim(kSeed);
  Link link(sim, with_credits(2, 4));
  std::vector<Result<Payload>> kept;
  for (int i = 0; i < 50; ++i) kept.push_back(link.call("add", i, 1));
  for (int i = 0; i < 50; ++i) CHECK(value_of<int>(kept[static_cast<std::size_t>(i)]) == i + 1);
}

TEST_CASE("requests that handlers hold, hold no credits: two peers can call each other from their handlers") {
  SimFixture sim(kSeed);
  Link link(sim, with_credits(2, 2));
  std::vector<std::unique_ptr<Reply>> replies;
  for (int i = 0; i < 40; ++i) {
    replies.push_back(std::make_unique<Reply>());
    Channel& channel = i % 2 == 0 ? link.a() : link.b();
    channel.call({"test", "hold", link.in(20s)}, encode_arguments(i), replies.back()->handler());
  }
  REQUIRE(link.until([&] { return link.held.size() == 40; }));
  CHECK(value_of<int>(link.call("add", 1, 1)) == 2);
  for (Request& request : link.held) request.reply(encode_value(7));
  REQUIRE(link.until(
      [&] { return std::all_of(replies.begin(), replies.end(), [](auto& r) { return r->done(); }); }));
  for (const auto& reply : replies) CHECK(value_of<int>(*reply->value) == 7);
}

TEST_CASE("more calls than the peer takes unanswered are refused here") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.b.max_calls = 3;  // b answers at most 3 at once
  Link link(sim, options);
  std::vector<std::unique_ptr<Reply>> replies;
  for (int i = 0; i < 4; ++i) {
    replies.push_back(std::make_unique<Reply>());
    link.a().call({"test", "hold", link.in(20s)}, encode_arguments(), replies.back()->handler());
  }
  REQUIRE(link.until([&] { return replies[3]->done(); }));
  CHECK(replies[3]->status().code() == Code::kResourceExhausted);
  CHECK(!replies[3]->status().maybe_executed());
  REQUIRE(link.until([&] { return link.held.size() == 3; }));
  link.held.clear();
  REQUIRE(link.until([&] { return replies[0]->done() && replies[1]->done() && replies[2]->done(); }));
}

TEST_CASE("a peer that still works on calls that we gave up refuses more, unexecuted") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.b.max_calls = 2;
  Link link(sim, options);
  for (int i = 0; i < 2; ++i) {
    Reply reply;
    link.a().call({"test", "hold", link.in(1s)}, encode_arguments(), reply.handler());
    REQUIRE(link.until([&] { return reply.done(); }));
  }
  const Status status = link.call("add", 1, 2).status();
  CHECK(status.code() == Code::kResourceExhausted);
  CHECK(!status.maybe_executed());
  link.held.clear();
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
}

TEST_CASE("a full queue refuses calls, and what it held goes out when the peer is back") {
  SimFixture sim(kSeed);
  LinkOptions options;
  options.a.queue_bytes = 4096;
  options.port.base_credits = 1;
  options.port.max_credits = 1;
  Link link(sim, options);
  sim.freeze_b(link.pair);
  std::vector<std::unique_ptr<Reply>> replies;
  for (int i = 0; i < 40; ++i) {
    replies.push_back(std::make_unique<Reply>());
    link.a().call({"test", "raw", link.in(20s)}, pattern(500), replies.back()->handler());
  }
  sim.pass(1ms);
  int refused = 0;
  for (const auto& reply : replies) {
    if (!reply->done()) continue;
    ++refused;
    CHECK(reply->status().code() == Code::kResourceExhausted);
    CHECK(!reply->status().maybe_executed());
  }
  CHECK(refused > 20);
  CHECK(refused < 40);
  sim.thaw_b(link.pair);
  REQUIRE(link.until(
      [&] { return std::all_of(replies.begin(), replies.end(), [](auto& r) { return r->done(); }); }));
  int good = 0;
  for (const auto& reply : replies) good += reply->value->has_value() ? 1 : 0;
  CHECK(good == 40 - refused);
}

TEST_CASE("a call whose deadline passes in our queue was not executed") {
  SimFixture sim(kSeed);
  Link link(sim, with_credits(1, 1));
  sim.freeze_b(link.pair);
  Reply sent, queued;
  link.a().call({"test", "add", link.in(1s)}, encode_arguments(1, 2), sent.handler());
  link.a().call({"test", "add", link.in(1s)}, encode_arguments(1, 2), queued.handler());
  link.a().ping(link.in(20s), [](Status) {});
  REQUIRE(link.until([&] { return sent.done() && queued.done(); }));
  CHECK(sent.status().maybe_executed());
  CHECK(queued.status().code() == Code::kDeadlineExceeded);
  CHECK(!queued.status().maybe_executed());
  CHECK(link.a().counters().queued_frames == 1);
  sim.thaw_b(link.pair);
  REQUIRE(link.until([&] { return link.a().idle(); }));
  CHECK(link.b().counters().requests == 1);
}

TEST_CASE("handlers may use the channel, close it and cancel others") {
  SimFixture sim(kSeed);
  Link link(sim);
  Reply nested, cancelled;
  const auto ticket = link.a().call({"test", "hold", link.in(20s)}, encode_arguments(), cancelled.handler());
  bool outer_done = false;
  link.a().call({"test", "add", link.in(20s)}, encode_arguments(1, 2), [&](Result<Payload> result) {
    CHECK(value_of<int>(result) == 3);
    link.a().call({"test", "add", link.in(20s)}, encode_arguments(3, 4), nested.handler());
    link.a().cancel(ticket);
    CHECK(!nested.done());
    CHECK(!cancelled.done());
    outer_done = true;
  });
  REQUIRE(link.until([&] { return nested.done() && cancelled.done(); }));
  CHECK(outer_done);
  CHECK(value_of<int>(*nested.value) == 7);
  Done ping;
  link.a().ping(link.in(20s), [&](Status status) {
    link.a().close(1s);
    ping.handler()(std::move(status));
  });
  REQUIRE(link.until([&] { return link.owners[0].closed == 1; }));
  CHECK(ping.status.ok());
}

TEST_CASE("a ping proves that the peer's loop runs") {
  SimFixture sim(kSeed);
  Link link(sim);
  Done alive, dead;
  link.a().ping(link.in(5s), alive.handler());
  REQUIRE(link.until([&] { return alive.done(); }));
  CHECK(alive.status.ok());
  sim.freeze_b(link.pair);
  link.a().ping(link.in(5s), dead.handler());
  REQUIRE(link.until([&] { return dead.done(); }));
  CHECK(dead.status.code() == Code::kDeadlineExceeded);
}

TEST_CASE("regions are looked up by name, used, and revoked") {
  SimFixture sim(kSeed);
  Link link(sim);
  ByteVector memory = pattern(5000);
  auto region = sim.device(1).register_memory(memory.data(), memory.size(), transport::Rights::kRemoteRead);
  REQUIRE(region.has_value());
  link.owners[1].regions["weights"] = region->describe();
  Outcome<transport::RemoteRegion> found, missing, bad;
  link.a().lookup_region("weights", link.in(5s), found.handler());
  link.a().lookup_region("nope", link.in(5s), missing.handler());
  link.a().lookup_region("", link.in(5s), bad.handler());
  REQUIRE(link.until([&] { return found.done() && missing.done() && bad.done(); }));
  REQUIRE(found.value->has_value());
  CHECK((*found.value)->length_bytes() == 5000);
  CHECK(missing.status().code() == Code::kNotFound);
  CHECK(missing.status().text() == "no region 'nope'");
  CHECK(bad.status().code() == Code::kInvalidArgument);

  ByteVector into(1000);
  auto local = sim.device(0).register_memory(into.data(), into.size(), transport::Rights::kLocal);
  REQUIRE(local.has_value());
  transport::testing::TestOperation read;
  const transport::CopyBlock copy{&*local, 0, &**found.value, 77, 1000};
  REQUIRE(link.a().endpoint().read(std::span(&copy, 1), read).ok());
  REQUIRE(link.until([&] { return read.done(); }));
  CHECK(std::equal(into.begin(), into.end(), memory.begin() + 77));

  link.b().revoke_region("weights");
  REQUIRE(link.until([&] { return !link.owners[0].revoked.empty(); }));
  CHECK(link.owners[0].revoked == std::vector<std::string>{"weights"});
  CHECK(local->close().ok());
  CHECK(region->close().ok());
}

TEST_CASE("notifications and room for more reach the owner") {
  SimFixture sim(kSeed);
  Link link(sim);
  transport::testing::TestOperation operation;
  REQUIRE(link.a().endpoint().write_with_imm({}, 77, operation).ok());
  REQUIRE(link.until([&] { return !link.owners[1].imms.empty(); }));
  CHECK(link.owners[1].imms == std::vector<std::uint32_t>{77});
  REQUIRE(link.until([&] { return operation.done(); }));
}
