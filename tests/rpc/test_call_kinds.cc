#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "base/str.h"
#include "rpc/interceptor.h"
#include "rpc/stream.h"
#include "tests/rpc/channel_fixture.h"

// Metadata, attachments and timing, of each kind of call.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

enum class Way { kAttached, kOneWay, kStream };
constexpr std::array kWays{Way::kAttached, Way::kOneWay, Way::kStream};

std::shared_ptr<CallContext> token(std::string_view value, Need need = Need::kRequired) {
  auto context = std::make_shared<CallContext>();
  REQUIRE(context->metadata.set("token", value, need).ok());
  return context;
}

using Keeps = ServerStream<None, int, Attachment>;

// Serves "kinds" on side 1. "take" and "stream" note the token and the bytes beside the arguments
// that they got.
struct Kinds : Link {
  explicit Kinds(Fixture& f, LinkOptions link_options = {}) : Link(f, std::move(link_options)) {
    Service service("kinds");
    const auto added = [](const Status& status) { REQUIRE_MESSAGE(status.ok(), status.to_string()); };
    added(service.add("take",
                      [this](const CallInfo& info, const Attachment& beside) {
                        note(info, beside);
                        return beside;
                      },
                      {.run = Run::kInline}));
    added(service.add("stream",
                      [this](Keeps stream, const Attachment& beside) {
                        note(stream.info(), beside);
                        streams.push_back(std::make_unique<Keeps>(std::move(stream)));
                      },
                      {.run = Run::kInline}));
    added(servers[1]->add(service));
  }
  ~Kinds() { streams.clear(); }

  void note(const CallInfo& info, const Attachment& beside) {
    noted.push_back(str(info.metadata("token").value_or("-"), " ", beside.size()));
  }

  // One call of side 0, until it has ended; its handler's side of it runs 2 ms at least if it
  // streams.
  Status make(Way way, std::shared_ptr<CallContext> context, std::size_t bytes) {
    Reply reply;
    Done done;
    AttachedBody request = encode_attached_arguments(Attachment(pattern(bytes)));
    const CallSpec spec{"kinds", way == Way::kStream ? "stream" : "take", in(20s), std::move(context)};
    switch (way) {
      case Way::kAttached:
        a().call_attached(spec, std::move(request), reply.handler());
        break;
      case Way::kOneWay:
        a().call_one_way(spec, std::move(request), done.handler());
        break;
      case Way::kStream:
        a().stream(spec, std::move(request), std::make_shared<StreamEnd>(nullptr, true), reply.handler());
        break;
    }
    CHECK_FALSE((reply.done() || done.done()));
    const auto ended = [&] { return reply.done() || done.done(); };
    REQUIRE(until([&] { return ended() || !streams.empty(); }));
    if (!streams.empty()) {
      const TimePoint later = in(2ms);
      fixture.loop(1).add_timer(later, [this] {
        streams.back()->request().reply(encode_value(1));
        streams.clear();
      });
    }
    REQUIRE(until(ended));
    CHECK(reply.calls + done.calls == 1);
    return way == Way::kOneWay ? done.status : reply.status();
  }
  void check_quiet() {
    REQUIRE(until([&] { return a().idle() && b().idle(); }));
    CHECK(a().counters().lent_buffers == 0);
    CHECK(a().counters().streams == 0);
    CHECK(owners[0].one_way_failures.empty());
  }

  std::vector<std::string> noted;
  std::vector<std::unique_ptr<Keeps>> streams;
};

}  // namespace

TEST_CASE("metadata and attachments reach the handler of every kind of call, by name and by number") {
  for (const Way way : kWays) {
    for (const std::size_t bytes : {std::size_t{10}, std::size_t{300'000}}) {
      CAPTURE(static_cast<int>(way));
      CAPTURE(bytes);
      SimFixture sim(kSeed);
      Kinds link(sim);
      for (std::size_t round = 1; round <= 3; ++round) {
        const Status status = link.make(way, token(str("t", round)), bytes);
        REQUIRE_MESSAGE(status.ok(), status.to_string());
        REQUIRE(link.until([&] { return link.noted.size() == 2 * round - 1; }));
        CHECK(link.noted.back() == str("t", round, " ", bytes));
        // What one carries the next one does not.
        REQUIRE(link.make(way, nullptr, bytes).ok());
        REQUIRE(link.until([&] { return link.noted.size() == 2 * round; }));
        CHECK(link.noted.back() == str("- ", bytes));
      }
      link.check_quiet();
    }
  }
}

TEST_CASE("the result of a stream has attachments, which are read into memory that its caller named") {
  SimFixture sim(kSeed);
  Kinds link(sim);
  ByteVector mine(300'000);
  Reply reply;
  AttachedBody request = encode_attached_arguments(Attachment(pattern(1)));
  request.into.emplace_back(MutableBytes(mine));
  link.a().stream({"kinds", "stream", link.in(20s)}, std::move(request),
                  std::make_shared<StreamEnd>(nullptr, true), reply.handler());
  REQUIRE(link.until([&] { return link.streams.size() == 1; }));
  Request& served = link.streams[0]->request();
  AttachedBody result = encode_attached_value(Attachment(pattern(300'000)));
  served.attach(std::move(result.attachments));
  served.reply(std::move(result.body));
  REQUIRE(link.until([&] { return reply.done(); }));
  REQUIRE_MESSAGE(reply.status().ok(), reply.status().to_string());
  REQUIRE((*reply.value)->attachments().size() == 1);
  CHECK((*reply.value)->attachments()[0].bytes().data() == mine.data());
  CHECK(mine == pattern(300'000));
  reply.value.reset();
  link.streams.clear();
  link.check_quiet();
}

TEST_CASE("the times of a call with attachments, and of all of a stream, are told by the simulated clock") {
  for (const Way way : {Way::kAttached, Way::kStream}) {
    CAPTURE(static_cast<int>(way));
    SimFixture sim(kSeed);
    Kinds link(sim);
    for (int round = 0; round < 2; ++round) {
      const auto context = std::make_shared<CallContext>();
      context->timed = true;
      REQUIRE(link.make(way, context, 300'000).ok());
      const CallTiming& timing = context->timing;
      CHECK(timing.split);
      CHECK(timing.queue + timing.handler + timing.network == timing.total);
      CHECK(timing.network > Nanos::zero());
      CHECK((timing.handler >= 2ms) == (way == Way::kStream));
    }
    link.check_quiet();
  }
}

TEST_CASE("a one-way call is not answered for the times that it asks for, and its own are all network") {
  SimFixture sim(kSeed);
  Kinds link(sim);
  for (int round = 0; round < 2; ++round) {  // by name, which is answered all the same, and by number
    const auto context = token("x");
    context->timed = true;
    const auto sent = link.b().endpoint().counters().messages_sent;
    REQUIRE(link.make(Way::kOneWay, context, 10).ok());
    CHECK_FALSE(context->timing.split);
    CHECK(context->timing.network == context->timing.total);
    link.check_quiet();
    REQUIRE(link.until([&] { return link.noted.size() == static_cast<std::size_t>(round) + 1; }));
    REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
    if (round == 1) CHECK(link.b().endpoint().counters().messages_sent == sent);
  }
  CHECK(link.noted == std::vector<std::string>{"x 10", "x 10"});
  CHECK(link.owners[0].closed == 0);
}

TEST_CASE("a context can go on to another attempt, with times of its own") {
  SimFixture sim(kSeed);
  Kinds link(sim);
  const auto context = token("x");
  context->timed = true;
  REQUIRE(link.make(Way::kStream, context, 1).ok());
  CHECK(context->timing.split);
  const TimePoint began = context->began;
  Reply late;
  link.a().call({"kinds", "take", sim.now(), context}, {}, late.handler());
  REQUIRE(link.until([&] { return late.done(); }));
  CHECK(late.status().code() == Code::kDeadlineExceeded);
  CHECK_FALSE(context->timing.split);
  CHECK(context->began == began);
  CHECK(context->timing.total >= 2ms);
  link.check_quiet();
}

namespace {

class Auth final : public ServerInterceptor {
 public:
  Status before(ServerCall& call) override {
    if (call.info.metadata("token") != "right") return Status(Code::kUnauthenticated, "no token");
    return call.metadata.set("token", "seen");
  }
  void after(const CallInfo&, const Status& outcome, const CallTiming& times) override {
    log.push_back(str(code_name(outcome.code()), times.handler >= 2ms ? " late" : ""));
  }
  std::vector<std::string> log;
};

}  // namespace

TEST_CASE("server interceptors see every kind of call, may refuse it, and are told how it was answered") {
  for (const Way way : kWays) {
    CAPTURE(static_cast<int>(way));
    SimFixture sim(kSeed);
    Kinds link(sim);
    const auto auth = std::make_shared<Auth>();
    link.servers[1]->add_interceptor(auth);
    for (std::size_t round = 1; round <= 2; ++round) {
      const Status refused = link.make(way, token("wrong"), 10);
      if (way == Way::kOneWay) {
        // It has left; that it was refused is counted.
        CHECK(refused.ok());
        REQUIRE(link.until([&] { return link.owners[0].one_way_failures.size() == round; }));
        CHECK(link.owners[0].one_way_failures.back().code() == Code::kUnauthenticated);
        CHECK_FALSE(link.owners[0].one_way_failures.back().maybe_executed());
      } else {
        CHECK(refused.code() == Code::kUnauthenticated);
        CHECK_FALSE(refused.maybe_executed());
      }
      CHECK(link.noted.size() == round - 1);
      REQUIRE(link.make(way, token("right"), 10).ok());
      REQUIRE(link.until([&] { return link.noted.size() == round; }));
      CHECK(link.noted.back() == "seen 10");
      REQUIRE(link.until([&] { return auth->log.size() == round; }));
      CHECK(auth->log.back() == (way == Way::kStream ? "ok late" : "ok"));
    }
    REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
  }
}
