#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "rpc/channel/request_maker.h"
#include "tests/rpc/calls_fixture.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;

namespace {

struct RequestMakerTest {
  explicit RequestMakerTest(bool greeted = true) {
    if (greeted) parts.base.greet();
  }
  // A call of "s.m" with this context, or null, and this signature, or 0.
  Ticket call(std::shared_ptr<CallContext> of, std::uint64_t signature, AttachedBody body, Reply& reply) {
    CallSpec spec{.service = "s", .method = "m"};
    spec.context = std::move(of);
    spec.signature = signature;
    return maker.call(spec, std::move(body), reply.handler(), 0);
  }
  std::shared_ptr<CallContext> context(Need need, bool timed = false) {
    auto out = std::make_shared<CallContext>();
    REQUIRE(out->metadata.set("key", "value", need).ok());
    out->timed = timed;
    return out;
  }
  // The peer's hello comes late and has no such features.
  void greet_without(std::uint64_t features) {
    parts.base.greet(wire::kOptionalFeatures & ~features);
    maker.withdraw_extras();
    maker.refuse_unknown_kinds();
    parts.outbox.flush();
    parts.base.complete_all();
  }
  PeerMethod& method() {
    PeerMethod* found = nullptr;
    REQUIRE(names.find("s", "m", found).ok());
    return *found;
  }

  CallsBase parts;
  MethodNames names{"peer", nullptr};
  CallContexts contexts{parts.sim.loop(0).clock()};
  AttachmentRoom room{parts.connection()};
  RequestMaker maker{{parts.connection(), names, parts.outbox, parts.lending, parts.calls, contexts, room}};
  ~RequestMakerTest() { parts.finish(); }
};

}  // namespace

TEST_CASE("a request names its method until the peer has told a number") {
  RequestMakerTest test;
  Reply reply;
  test.maker.call({.service = "s", .method = "m"}, pattern(5), reply.handler());
  wire::Frame frame = test.parts.last_frame();
  CHECK(frame.service == "s");
  CHECK(frame.method == "m");
  CHECK(frame.header.value == wire::kNoDeadline);
  CHECK(same(frame.body, pattern(5)));
  test.method().id = 7;
  test.maker.call({.service = "s", .method = "m"}, {}, reply.handler());
  frame = test.parts.last_frame();
  CHECK(frame.header.method == 7);
  CHECK(frame.text.empty());
  CHECK(test.maker.calls() == 2);
  CHECK(test.parts.calls.asked() == 2);
}

TEST_CASE("a call with a name that is none fails, and is counted") {
  RequestMakerTest test;
  Reply reply;
  CHECK(test.maker.call({.service = "", .method = "m"}, {}, reply.handler()).value == 0);
  test.parts.base.complete_all();
  CHECK(reply.status().code() == Code::kInvalidArgument);
  CHECK(!reply.status().maybe_executed());
  CHECK(test.maker.calls() == 1);
  CHECK(test.parts.calls.counters().calls_failed == 1);
}

TEST_CASE("a signature follows the names, and each signature has its number") {
  RequestMakerTest test;
  Reply reply;
  test.call(nullptr, 99, {}, reply);
  CHECK(wire::signature_of(test.parts.last_frame()) == 99);
  MethodNames::find_by_signature(test.method(), 99)->id = 3;
  test.call(nullptr, 99, {}, reply);
  CHECK(test.parts.last_frame().header.method == 3);
  CHECK(test.parts.last_frame().text.empty());
  test.call(nullptr, 98, {}, reply);
  CHECK(wire::signature_of(test.parts.last_frame()) == 98);
}

TEST_CASE("signatures and optional metadata of queued requests are withdrawn for an older peer") {
  RequestMakerTest test(false);
  Reply reply;
  test.call(test.context(Need::kOptional, true), 99, {}, reply);
  CHECK(test.parts.outbox.size() == 1);
  test.greet_without(wire::kFeatureSignatures | wire::kFeatureMetadata);
  const wire::Frame frame = test.parts.last_frame();
  CHECK(frame.service == "s");
  CHECK(frame.method == "m");
  CHECK((frame.header.flags & wire::kFlagMetadata) == 0);
  CHECK(wire::signature_of(frame) == 0);
  CHECK(frame.text.size() == wire::encode_names("s", "m").size());
  CHECK(!reply.done());
}

TEST_CASE("metadata and signature of a queued request reach a peer that knows them") {
  RequestMakerTest test(false);
  Reply reply;
  test.call(test.context(Need::kRequired, true), 99, {}, reply);
  test.greet_without(0);
  const wire::Frame frame = test.parts.last_frame();
  CHECK(wire::signature_of(frame) == 99);
  const wire::Extras extras = wire::extras_of(frame);
  CHECK(extras.timed);
  CHECK(extras.metadata.get("key") == "value");
}

TEST_CASE("required metadata, attachments and raw bodies fail at a peer that does not know them") {
  AttachedBody attached;
  attached.attachments.push_back(Attachment(pattern(10)));
  for (const bool queued : {true, false}) {
    RequestMakerTest test(false);
    const std::uint64_t features = wire::kFeatureMetadata | wire::kFeatureAttachments | wire::kFeatureRaw;
    if (!queued) test.greet_without(features);
    Reply replies[3];
    test.call(test.context(Need::kRequired), 0, {}, replies[0]);
    test.call(nullptr, 0, AttachedBody{.body = {}, .attachments = attached.attachments}, replies[1]);
    AttachedBody raw{.body = pattern(10)};
    raw.raw = true;
    test.call(nullptr, 0, std::move(raw), replies[2]);
    if (queued) test.greet_without(features);
    test.parts.base.complete_all();
    for (const Reply& reply : replies) {
      REQUIRE(reply.calls == 1);
      CHECK(reply.status().code() == Code::kUnimplemented);
      CHECK(!reply.status().maybe_executed());
    }
    CHECK(!test.parts.peer_got(1));
  }
}

TEST_CASE("a call of bytes has neither attachments nor memory for a reply's") {
  RequestMakerTest test;
  Reply reply;
  AttachedBody body;
  body.raw = true;
  body.attachments.push_back(Attachment(pattern(10)));
  test.call(nullptr, 0, std::move(body), reply);
  test.parts.base.complete_all();
  CHECK(reply.status().code() == Code::kInvalidArgument);
}

TEST_CASE("a call that cannot be made ends with its context, as others do") {
  RequestMakerTest test;
  Reply reply;
  CallSpec spec{.service = "s", .method = "m"};
  spec.context = test.context(Need::kOptional);
  test.parts.sim.pass(std::chrono::milliseconds(1));
  test.maker.refuse_call(spec, reply.handler(), Status(Code::kUnimplemented, "no streams"));
  test.parts.base.complete_all();
  CHECK(reply.status().code() == Code::kUnimplemented);
  CHECK(test.maker.calls() == 1);
  CHECK(test.parts.calls.counters().calls_failed == 1);
}

TEST_CASE("look-ups name a region, pings nothing") {
  RequestMakerTest test;
  Outcome<transport::RemoteRegion> region;
  test.maker.lookup_region("weights", kNever, region.handler());
  CHECK(test.parts.last_frame().header.type == wire::FrameType::kRegionLookup);
  CHECK(as_text(test.parts.last_frame().text) == "weights");
  Done pinged;
  const Ticket ping = test.maker.ping(kNever, pinged.handler());
  CHECK(test.parts.last_frame().header.type == wire::FrameType::kPing);
  CHECK(test.parts.last_frame().header.id == ping.value);
  const std::string name(test.parts.connection().message_bytes(), 'x');
  test.maker.lookup_region(name, kNever, region.handler());
  test.parts.base.complete_all();
  CHECK(region.calls == 1);
  CHECK(region.status().code() == Code::kInvalidArgument);
}
