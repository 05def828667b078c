#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "rpc/channel/call_contexts.h"
#include "rpc/channel/completions.h"

using namespace slime;
using namespace slime::rpc;
using namespace std::chrono_literals;

namespace {

// A reply to this call that tells times in nanoseconds.
struct TimedReply {
  TimedReply(Handle call, std::uint64_t queue, std::uint64_t handler) {
    ByteWriter(text).write(wire::ServerTimes{queue, handler});
    frame.header.type = wire::FrameType::kReply;
    frame.header.flags = wire::kFlagTiming;
    frame.header.id = call.packed();
    frame.text = text;
  }
  ByteVector text;
  wire::Frame frame;
};

constexpr Handle kCall{1, 1};

}  // namespace

TEST_CASE("a context has its times before the handler of its call is called") {
  ManualClock clock;
  CallContexts contexts(clock);
  const auto context = std::make_shared<CallContext>();
  context->timed = true;
  CallTiming seen;
  DoneHandler handler = [&](Status) { seen = context->timing; };
  contexts.watch(context, handler);
  contexts.keep(kCall, context);
  clock.advance(100ms);
  REQUIRE(contexts.take_times(TimedReply(kCall, 20'000'000, 30'000'000).frame).ok());
  handler(Status());
  CHECK(seen.total == 100ms);
  CHECK(seen.queue == 20ms);
  CHECK(seen.handler == 30ms);
  CHECK(seen.network == 50ms);
  CHECK(seen.split);
}

TEST_CASE("times that no call waits for are corrupt") {
  ManualClock clock;
  CallContexts contexts(clock);
  const TimedReply reply(kCall, 1, 1);
  CHECK(contexts.take_times(reply.frame).code() == Code::kCorrupt);
  const auto untimed = std::make_shared<CallContext>();
  DoneHandler handler = [](Status) {};
  contexts.watch(untimed, handler);
  contexts.keep(kCall, untimed);
  CHECK(contexts.take_times(reply.frame).code() == Code::kCorrupt);
}

TEST_CASE("a call that has ended keeps no context") {
  ManualClock clock;
  CallContexts contexts(clock);
  const auto context = std::make_shared<CallContext>();
  context->timed = true;
  REQUIRE(context->metadata.set("key", "value").ok());
  DoneHandler handler = [](Status) {};
  contexts.watch(context, handler);
  contexts.keep(kCall, context);
  CHECK(contexts.requires_metadata(kCall));
  CHECK(!contexts.requires_metadata(Handle{1, 2}));
  handler(Status(Code::kCancelled, "cancelled"));
  CHECK(!contexts.requires_metadata(kCall));
  CHECK(contexts.take_times(TimedReply(kCall, 1, 1).frame).code() == Code::kCorrupt);
  CHECK(!context->timing.split);
}

TEST_CASE("metadata that is optional is not required, and times of any size are bounded") {
  ManualClock clock;
  CallContexts contexts(clock);
  const auto context = std::make_shared<CallContext>();
  context->timed = true;
  REQUIRE(context->metadata.set("key", "value", Need::kOptional).ok());
  DoneHandler handler = [](Status) {};
  contexts.watch(context, handler);
  contexts.keep(kCall, context);
  CHECK(!contexts.requires_metadata(kCall));
  clock.advance(10ms);
  REQUIRE(contexts.take_times(TimedReply(kCall, ~std::uint64_t{0}, ~std::uint64_t{0}).frame).ok());
  handler(Status());
  CHECK(context->timing.total == 10ms);
  CHECK(context->timing.queue + context->timing.handler + context->timing.network == 10ms);
}
