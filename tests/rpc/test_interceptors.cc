#include <doctest/doctest.h>

#include <set>
#include <stdexcept>

#include "base/str.h"
#include "rpc/interceptor.h"
#include "rpc/reflection.h"
#include "tests/rpc/channel_fixture.h"

// Server interceptors over a channel: what they see, what they may do, in which order.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace interceptors_test {
namespace {

// Writes down what happens to it.
class Witness : public ServerInterceptor {
 public:
  Witness(std::string name, std::vector<std::string>& log) : name_(std::move(name)), log_(log) {}
  Status before(ServerCall& call) override {
    log_.push_back(str(name_, " before ", call.info.peer, " ", call.info.service, ".", call.info.method));
    return {};
  }
  void after(const CallInfo& info, const Status& outcome, const CallTiming& times) override {
    log_.push_back(str(name_, " after ", info.method, ": ", code_name(outcome.code())));
    last = times;
  }
  CallTiming last;

 private:
  const std::string name_;
  std::vector<std::string>& log_;
};

class Auth final : public ServerInterceptor {
 public:
  Status before(ServerCall& call) override {
    if (call.info.metadata("token") == "right") return {};
    return Status(Code::kUnauthenticated, "no token that is known");
  }
};

class Throws final : public ServerInterceptor {
 public:
  explicit Throws(bool at_once) : at_once_(at_once) {}
  Status before(ServerCall&) override {
    if (at_once_) throw std::runtime_error("broken before");
    return {};
  }
  void after(const CallInfo&, const Status&, const CallTiming&) override { throw 7; }

 private:
  const bool at_once_;
};

Result<Payload> call(Link& link, Metadata metadata, std::string_view method, ByteVector body) {
  auto context = std::make_shared<CallContext>();
  context->metadata = std::move(metadata);
  Reply reply;
  link.a().call({"test", method, link.in(20s), context}, std::move(body), reply.handler());
  REQUIRE(link.until([&] { return reply.done(); }));
  return std::move(*reply.value);
}

}  // namespace

TEST_CASE("interceptors are asked in order and told in reverse order, with the outcome and the times") {
  SimFixture sim(kSeed);
  Link link(sim);
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);  // the method has a number by now
  std::vector<std::string> log;
  const auto first = std::make_shared<Witness>("first", log);
  const auto second = std::make_shared<Witness>("second", log);
  link.servers[1]->add_interceptor(first);
  link.servers[1]->add_interceptor(second);
  CHECK(value_of<int>(link.call("add", 2, 3)) == 5);
  CHECK(link.call("fail", 3, std::string("there")).status().code() == Code::kAlreadyExists);
  const std::vector<std::string> expected{"first before a test.add",
                                          "second before a test.add",
                                          "second after add: ok",
                                          "first after add: ok",
                                          "first before a test.fail",
                                          "second before a test.fail",
                                          "second after fail: already_exists",
                                          "first after fail: already_exists"};
  CHECK(log == expected);

  Reply reply;
  link.a().call({"test", "hold", link.in(60s)}, {}, reply.handler());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  link.fixture.loop(1).add_timer(link.in(3ms), [&] {
    link.held[0].reply(encode_value(1));
    link.held.clear();
  });
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().ok());
  CHECK(first->last.handler >= 3ms);
  CHECK(first->last.handler < 4ms);
  CHECK(first->last.queue == Nanos::zero());
}

TEST_CASE("an interceptor that refuses keeps the handler from running, and the caller learns that") {
  SimFixture sim(kSeed);
  Link link(sim);
  std::vector<std::string> log;
  link.servers[1]->add_interceptor(std::make_shared<Witness>("outer", log));
  link.servers[1]->add_interceptor(std::make_shared<Auth>());
  link.servers[1]->add_interceptor(std::make_shared<Witness>("inner", log));
  for (const std::string token : {"", "wrong"}) {
    Metadata metadata;
    REQUIRE(metadata.set("token", token).ok());
    const auto reply = call(link, std::move(metadata), "hold", {});
    CHECK(reply.status().code() == Code::kUnauthenticated);
    CHECK(reply.status().text() == "no token that is known");
    CHECK_FALSE(reply.status().maybe_executed());
  }
  CHECK(link.held.empty());
  CHECK(link.call("add", 1, 2).status().code() == Code::kUnauthenticated);
  CHECK(log.size() == 6);
  CHECK(log.back() == "outer after add: unauthenticated");
  Metadata metadata;
  REQUIRE(metadata.set("token", "right").ok());
  CHECK(value_of<int>(call(link, std::move(metadata), "add", encode_arguments(1, 2))) == 3);
  CHECK(log.size() == 10);
}

TEST_CASE("the server's own services go through interceptors, too") {
  SimFixture sim(kSeed);
  Link link(sim);
  link.servers[1]->add_interceptor(std::make_shared<Auth>());
  const auto reply = link.call_raw(kReflectionService, "services", encode_arguments());
  CHECK(reply.status().code() == Code::kUnauthenticated);
}

TEST_CASE("an interceptor that throws answers internal: not executed before, executed after") {
  for (const bool at_once : {true, false}) {
    SimFixture sim(kSeed);
    Link link(sim);
    link.servers[1]->add_interceptor(std::make_shared<Throws>(at_once));
    const auto reply = link.call("add", 1, 2);
    CHECK(reply.status().code() == Code::kInternal);
    CHECK(reply.status().maybe_executed() == !at_once);
    CHECK(reply.status().text().find("interceptor threw") != std::string::npos);
  }
}

TEST_CASE("a request that its handler drops is seen, and one of a caller that is gone ends") {
  SimFixture sim(kSeed);
  Link link(sim);
  std::vector<std::string> log;
  link.servers[1]->add_interceptor(std::make_shared<Witness>("w", log));
  CHECK(link.call("drop").status().code() == Code::kInternal);
  REQUIRE(log.size() == 2);
  CHECK(log[1] == "w after drop: internal");
  Reply reply;
  const Ticket ticket = link.a().call({"test", "hold", link.in(60s)}, {}, reply.handler());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  int told = 0;
  link.held[0].on_cancel([&] { ++told; });
  link.a().cancel(ticket);
  REQUIRE(link.until([&] { return told == 1; }));
  CHECK(link.held[0].cancelled());
  link.channels[0].reset();
  REQUIRE(link.until([&] { return link.owners[1].closed == 1; }));
  link.channels[1].reset();
  link.held.clear();
  CHECK(log.back() == "w after hold: internal");
}

TEST_CASE("a trace goes through two hops: one trace, a span for each") {
  SimFixture sim(kSeed);
  Link link(sim);
  link.servers[0]->add_interceptor(server_tracing());
  link.servers[1]->add_interceptor(server_tracing());
  const auto tracing = client_tracing();
  const auto next_hop = [&](std::string_view) {
    Metadata metadata;
    bool timed = false;
    ClientCall outgoing{"peer", "far", "end", metadata, timed};
    REQUIRE(tracing->before(outgoing).ok());
    return metadata;
  };
  std::vector<TraceContext> seen;
  Reply inner;
  Service far("far");
  REQUIRE(far.add("end",
                  [&](const CallInfo& info) {
                    REQUIRE(current_trace().has_value());
                    CHECK(current_trace()->traceparent() == info.metadata(kTraceparent));
                    CHECK(info.metadata(kTracestate) == "vendor=1");
                    seen.push_back(*current_trace());
                  },
                  {Run::kInline})
              .ok());
  REQUIRE(link.servers[0]->add(far).ok());
  Service near("near");
  REQUIRE(
      near.add("start",
               [&](const CallInfo& info) {
                 seen.push_back(*current_trace());
                 CHECK(info.metadata(kTracestate) == "vendor=1");
                 auto context = std::make_shared<CallContext>();
                 context->metadata = next_hop("far");
                 seen.push_back(*TraceContext::parse(*context->metadata.get(kTraceparent)));
                 link.b().call({"far", "end", link.in(20s), context}, encode_arguments(), inner.handler());
               },
               {Run::kInline})
          .ok());
  REQUIRE(link.servers[1]->add(near).ok());

  const std::string parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  auto context = std::make_shared<CallContext>();
  REQUIRE(context->metadata.set(kTraceparent, parent).ok());
  REQUIRE(context->metadata.set(kTracestate, "vendor=1").ok());
  Reply reply;
  link.a().call({"near", "start", link.in(20s), context}, encode_arguments(), reply.handler());
  REQUIRE(link.until([&] { return reply.done() && inner.done(); }));
  CHECK(reply.status().ok());
  CHECK(inner.status().ok());
  REQUIRE(seen.size() == 3);
  const TraceContext root = *TraceContext::parse(parent);
  std::set<std::array<std::uint8_t, 8>> spans{root.span_id};
  for (const TraceContext& each : seen) {
    CHECK(each.trace_id == root.trace_id);
    CHECK(spans.insert(each.span_id).second);
  }
  CHECK_FALSE(current_trace().has_value());
}

TEST_CASE("a traceparent that is none begins a new trace, without the tracestate of the bad one") {
  SimFixture sim(kSeed);
  Link link(sim);
  link.servers[1]->add_interceptor(server_tracing());
  std::optional<TraceContext> seen;
  bool state = true;
  Service service("trace");
  REQUIRE(service
              .add("see",
                   [&](const CallInfo& info) {
                     seen = TraceContext::parse(info.metadata(kTraceparent).value_or(""));
                     state = info.metadata(kTracestate).has_value();
                   },
                   {Run::kInline})
              .ok());
  REQUIRE(link.servers[1]->add(service).ok());
  for (const std::string bad : {"", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"}) {
    auto context = std::make_shared<CallContext>();
    REQUIRE(context->metadata.set(kTraceparent, bad).ok());
    REQUIRE(context->metadata.set(kTracestate, "vendor=1").ok());
    Reply reply;
    link.a().call({"trace", "see", link.in(20s), context}, encode_arguments(), reply.handler());
    REQUIRE(link.until([&] { return reply.done(); }));
    REQUIRE(seen.has_value());
    CHECK_FALSE(state);
    seen.reset();
  }
}

TEST_CASE("traceparents: what is one, and what is none") {
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  REQUIRE(TraceContext::parse(good).has_value());
  CHECK(TraceContext::parse(good)->traceparent() == good);
  CHECK(TraceContext::parse(good.substr(0, 53) + "00")->sampled == false);
  CHECK(TraceContext::parse(good.substr(0, 53) + "03")->traceparent() == good);  // unknown flags are dropped
  CHECK(TraceContext::parse("cc" + good.substr(2) + "-what comes")->traceparent() == good);
  CHECK(TraceContext::parse("cc" + good.substr(2))->traceparent() == good);
  const std::vector<std::string> bad{"",
                                     good.substr(0, 54),
                                     good + "-",
                                     good + "0",
                                     "ff" + good.substr(2),
                                     "0g" + good.substr(2),
                                     "cc" + good.substr(2) + "x",
                                     "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                     "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                                     "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                                     "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                     "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0 "};
  for (const std::string& each : bad) {
    CAPTURE(each);
    CHECK_FALSE(TraceContext::parse(each).has_value());
  }
  CHECK(TraceContext::parse(good, "a=1,b=2")->tracestate == "a=1,b=2");
  CHECK(TraceContext::parse(good, std::string(513, 'x'))->tracestate.empty());
  CHECK(TraceContext::parse(good, "a\x01")->tracestate.empty());
  const TraceContext made = TraceContext::create();
  CHECK(TraceContext::parse(made.traceparent())->traceparent() == made.traceparent());
  CHECK(made.child().trace_id == made.trace_id);
  CHECK(made.child().span_id != made.span_id);
  {
    const TraceScope scope(made);
    CHECK(current_trace()->traceparent() == made.traceparent());
  }
  CHECK_FALSE(current_trace().has_value());
}

}  // namespace interceptors_test
