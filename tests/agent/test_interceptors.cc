#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "tests/agent/agents.h"

// Metadata, timing and interceptors as users of agents have them, over real connections.
namespace slime {
namespace {

using namespace test;

class Refuses final : public rpc::ClientInterceptor {
 public:
  Status before(rpc::ClientCall& call) override {
    if (call.method != "fail") return {};
    return Status(Code::kPermissionDenied, "not from here");
  }
};

class Counts final : public rpc::ClientInterceptor {
 public:
  Status before(rpc::ClientCall& call) override {
    ++before_calls;
    call.timed = true;
    return call.metadata.set("from", "counter");
  }
  void after(const rpc::ClientCall& call, const Status& outcome, const rpc::CallTiming& timing) override {
    const std::lock_guard lock(mutex);
    ++ends[std::string(call.method) + " " + std::string(code_name(outcome.code()))];
    last = timing;
    kind = call.kind;
  }
  std::atomic<int> before_calls{0};
  std::mutex mutex;
  std::map<std::string, int> ends;
  rpc::CallTiming last;
  rpc::CallKind kind{};
};

// Calls that "kinds" has received: the caller, and the bytes of attachments.
struct Noted {
  void add(const rpc::CallInfo& info, const Attachment& beside) {
    const std::lock_guard lock(mutex);
    all.push_back(std::string(info.metadata("user").value_or("-")) + " " + std::to_string(beside.size()));
  }
  std::vector<std::string> get() {
    const std::lock_guard lock(mutex);
    return all;
  }
  std::mutex mutex;
  std::vector<std::string> all;
};

rpc::Service kinds(Noted& noted) {
  rpc::Service service("kinds");
  REQUIRE(service
              .add("take",
                   [&noted](const rpc::CallInfo& info, const Attachment& beside) {
                     noted.add(info, beside);
                     return beside;
                   })
              .ok());
  REQUIRE(service
              .add("stream",
                   [&noted](rpc::ServerStream<None, int>& out, const Attachment& beside) -> Status {
                     noted.add(out.info(), beside);
                     for (int i = 0; i < 3; ++i) SLIME_TRY(out.write(i).wait().status());
                     return {};
                   })
              .ok());
  return service;
}

class Throws final : public rpc::ClientInterceptor {
 public:
  explicit Throws(bool at_once) : at_once_(at_once) {}
  Status before(rpc::ClientCall&) override {
    if (at_once_) throw std::runtime_error("broken");
    return {};
  }
  void after(const rpc::ClientCall&, const Status&, const rpc::CallTiming&) override {
    throw std::runtime_error("broken");
  }

 private:
  const bool at_once_;
};

// b serves "calc", "meta.get" (the value of a key) and, through c, "meta.trace": the traces of both
// hops.
struct Three {
  Three() : a(start("a")), b(start("b")), c(start("c")), peer(a->peer(b->address())) {
    rpc::Service calc = calculator();
    REQUIRE(b->serve(calc).ok());
    rpc::Service meta("meta");
    const auto get = [](const rpc::CallInfo& info, const std::string& key) {
      return std::string(info.metadata(key).value_or("-"));
    };
    REQUIRE(meta.add("get", get).ok());
    REQUIRE(meta.add("trace",
                     [this](const rpc::CallInfo& info) -> Result<std::vector<std::string>> {
                       auto far =
                           b->peer(c->address()).call<std::string>("far", "get", "traceparent").wait(kSoon);
                       if (!far) return std::move(far).error();
                       return std::vector{std::string(info.metadata("traceparent").value_or("-")), *far};
                     })
                .ok());
    REQUIRE(b->serve(meta).ok());
    rpc::Service far("far");
    REQUIRE(far.add("get", get).ok());
    REQUIRE(c->serve(far).ok());
  }
  std::unique_ptr<PeerAgent> a;
  std::unique_ptr<PeerAgent> b;
  std::unique_ptr<PeerAgent> c;
  Peer peer;
};

TEST_CASE("a peer with metadata sends it with each call, and one without sends none") {
  Three three;
  const Peer named = three.peer.with_metadata("user", "ann").with_metadata("team", "red");
  Peer both = named;
  CHECK(take(both.call<std::string>("meta", "get", "user").wait(kSoon)) == "ann");
  CHECK(take(both.call<std::string>("meta", "get", "team").wait(kSoon)) == "red");
  CHECK(take(three.peer.call<std::string>("meta", "get", "user").wait(kSoon)) == "-");
  Peer bad = named.with_metadata("", "x");
  const auto refused = bad.call<std::string>("meta", "get", "user").wait(kSoon);
  CHECK(code_of(refused) == Code::kInvalidArgument);
  CHECK_FALSE(refused.status().maybe_executed());
}

TEST_CASE("the parts of a call's time are told when it has ended, also with an error, and add up") {
  Three three;
  const auto timing = std::make_shared<rpc::CallTiming>();
  Peer timed = three.peer.with_timing(timing);
  CHECK(take(timed.call<std::int64_t>("calc", "add", 40, 2).wait(kSoon)) == 42);
  CHECK(timing->split);
  CHECK(timing->handler > Nanos::zero());
  CHECK(timing->queue + timing->handler + timing->network == timing->total);
  *timing = {};
  CHECK(code_of(timed.call<int>("calc", "missing").wait(kSoon)) == Code::kNotFound);
  CHECK(timing->split);
  CHECK(timing->queue + timing->handler + timing->network == timing->total);
  // The peer is absent: the timing has a total, and no parts.
  *timing = {};
  Peer nobody = three.a->peer("127.0.0.1:1").with_timing(timing);
  CHECK(code_of(nobody.call<int>("calc", "add", 1, 2).wait(kSoon)) == Code::kUnavailable);
  CHECK_FALSE(timing->split);
  CHECK(timing->total > Nanos::zero());
  CHECK(timing->network == timing->total);
}

TEST_CASE("client interceptors add metadata, see every end, and may refuse") {
  Three three;
  const auto counts = std::make_shared<Counts>();
  three.a->add_interceptor(counts);
  three.a->add_interceptor(std::make_shared<Refuses>());
  CHECK(take(three.peer.call<std::string>("meta", "get", "from").wait(kSoon)) == "counter");
  const auto refused = three.peer.call<int>("calc", "fail", "x").wait(kSoon);
  CHECK(code_of(refused) == Code::kPermissionDenied);
  CHECK(refused.status().text() == "not from here");
  CHECK_FALSE(refused.status().maybe_executed());
  CHECK(code_of(three.peer.call<int>("calc", "missing").wait(kSoon)) == Code::kNotFound);
  Peer nobody = three.a->peer("127.0.0.1:1");
  CHECK(code_of(nobody.call<int>("calc", "add", 1, 2).wait(kSoon)) == Code::kUnavailable);
  CHECK(counts->before_calls == 4);
  const std::lock_guard lock(counts->mutex);
  const std::map<std::string, int> expected{
      {"get ok", 1}, {"fail permission_denied", 1}, {"missing not_found", 1}, {"add unavailable", 1}};
  CHECK(counts->ends == expected);
}

TEST_CASE("an interceptor of one peer sees its calls alone") {
  Three three;
  const auto counts = std::make_shared<Counts>();
  Peer seen = three.peer.with_interceptor(counts);
  CHECK(take(seen.call<std::string>("meta", "get", "from").wait(kSoon)) == "counter");
  CHECK(take(three.peer.call<std::string>("meta", "get", "from").wait(kSoon)) == "-");
  CHECK(counts->before_calls == 1);
  const std::lock_guard lock(counts->mutex);
  CHECK(counts->last.split);
}

TEST_CASE("a client interceptor that throws ends the call with internal") {
  Three three;
  for (const bool at_once : {true, false}) {
    CAPTURE(at_once);
    Peer broken = three.peer.with_interceptor(std::make_shared<Throws>(at_once));
    const auto ended = broken.call<std::int64_t>("calc", "add", 1, 2).wait(kSoon);
    CHECK(code_of(ended) == Code::kInternal);
    CHECK(ended.status().maybe_executed() == !at_once);
  }
}

TEST_CASE("a trace goes on through the calls that a handler makes on its own thread") {
  Three three;
  for (PeerAgent* each : {three.a.get(), three.b.get(), three.c.get()}) {
    each->add_interceptor(rpc::server_tracing());
    each->add_interceptor(rpc::client_tracing());
    each->add_interceptor(rpc::server_logging());
    each->add_interceptor(rpc::client_logging());
  }
  const rpc::TraceContext root = rpc::TraceContext::create();
  std::vector<std::string> hops;
  {
    const rpc::TraceScope scope(root);
    hops = take(three.peer.call<std::vector<std::string>>("meta", "trace").wait(kSoon));
  }
  REQUIRE(hops.size() == 2);
  std::set<std::array<std::uint8_t, 8>> spans{root.span_id};
  for (const std::string& hop : hops) {
    CAPTURE(hop);
    const auto context = rpc::TraceContext::parse(hop);
    REQUIRE(context.has_value());
    CHECK(context->trace_id == root.trace_id);
    CHECK(spans.insert(context->span_id).second);
  }
  // Outside of it, another one.
  const auto other = take(three.peer.call<std::string>("meta", "get", "traceparent").wait(kSoon));
  REQUIRE(rpc::TraceContext::parse(other).has_value());
  CHECK(rpc::TraceContext::parse(other)->trace_id != root.trace_id);
}

TEST_CASE("calls of every kind carry metadata and attachments, pass interceptors, and are timed") {
  Three three;
  Noted noted;
  rpc::Service service = kinds(noted);
  REQUIRE(three.b->serve(service).ok());
  const auto counts = std::make_shared<Counts>();
  const auto timing = std::make_shared<rpc::CallTiming>();
  Peer peer = three.peer.with_metadata("user", "ann").with_interceptor(counts).with_timing(timing);
  const auto kind = [&] {
    const std::lock_guard lock(counts->mutex);
    return counts->kind;
  };
  for (const std::size_t bytes : {std::size_t{10}, std::size_t{200'000}}) {
    const std::string expected = "ann " + std::to_string(bytes);
    const Attachment beside(ByteVector(bytes, std::byte{7}));
    CHECK(take(peer.call<Attachment>("kinds", "take", beside).wait(kSoon)).size() == bytes);
    CHECK(noted.get().back() == expected);
    CHECK(kind() == rpc::CallKind::kPlain);
    CHECK(timing->split);

    auto stream = peer.stream<None, int>("kinds", "stream", beside);
    for (int i = 0; i < 3; ++i) CHECK(take(stream.read().wait(kSoon)) == i);
    CHECK(stream.finish().wait(kSoon).has_value());
    CHECK(noted.get().back() == expected);
    CHECK(kind() == rpc::CallKind::kStream);
    CHECK(timing->split);
    CHECK(timing->queue + timing->handler + timing->network == timing->total);

    const std::size_t before = noted.get().size();
    CHECK(peer.one_way("kinds", "take", beside).wait(kSoon).has_value());
    CHECK(kind() == rpc::CallKind::kOneWay);
    CHECK_FALSE(timing->split);
    CHECK(timing->network == timing->total);
    REQUIRE(eventually([&] { return noted.get().size() == before + 1; }));
    CHECK(noted.get().back() == expected);
  }
  CHECK(counts->before_calls == 6);
  const std::lock_guard lock(counts->mutex);
  CHECK(counts->ends == std::map<std::string, int>{{"take ok", 4}, {"stream ok", 2}});
}

TEST_CASE("a client interceptor refuses, and sees the end of, calls of every kind") {
  Three three;
  Noted noted;
  rpc::Service service = kinds(noted);
  REQUIRE(three.b->serve(service).ok());
  const auto counts = std::make_shared<Counts>();
  three.a->add_interceptor(counts);
  three.a->add_interceptor(std::make_shared<Refuses>());
  const Attachment beside(ByteVector(10, std::byte{7}));
  const auto check_refused = [](const Status& status) {
    CHECK(status.code() == Code::kPermissionDenied);
    CHECK_FALSE(status.maybe_executed());
  };
  check_refused(three.peer.one_way("kinds", "fail", 1).wait(kSoon).status());
  check_refused(three.peer.call<int>("kinds", "fail", beside).wait(kSoon).status());
  auto refused = three.peer.stream<int, int>("kinds", "fail");
  check_refused(refused.read().wait(kSoon).status());
  CHECK(code_of(refused.write(1).wait(kSoon)) == Code::kPermissionDenied);
  check_refused(refused.finish().wait(kSoon).status());
  // Those that fail later.
  Peer nobody = three.a->peer("127.0.0.1:1");
  CHECK(code_of(nobody.one_way("kinds", "take", 1).wait(kSoon)) == Code::kUnavailable);
  auto lost = nobody.stream<None, int>("kinds", "stream");
  CHECK(code_of(lost.finish().wait(kSoon)) == Code::kUnavailable);
  CHECK(code_of(three.peer.call<int>("kinds", "missing", beside).wait(kSoon)) == Code::kNotFound);
  CHECK(noted.get().empty());
  const std::lock_guard lock(counts->mutex);
  const std::map<std::string, int> expected{{"fail permission_denied", 3},
                                            {"take unavailable", 1},
                                            {"stream unavailable", 1},
                                            {"missing not_found", 1}};
  CHECK(counts->ends == expected);
}

TEST_CASE("a client interceptor sees the attachments of a call, and one that fails it fails any kind") {
  class Sees final : public rpc::ClientInterceptor {
   public:
    Status before(rpc::ClientCall& call) override {
      for (const Attachment& each : call.attachments) bytes += each.size();
      return {};
    }
    void after(const rpc::ClientCall& call, const Status&, const rpc::CallTiming&) override {
      CHECK(call.attachments.empty());
      throw std::runtime_error("broken");
    }
    std::size_t bytes = 0;
  };
  Three three;
  Noted noted;
  rpc::Service service = kinds(noted);
  REQUIRE(three.b->serve(service).ok());
  const auto sees = std::make_shared<Sees>();
  Peer peer = three.peer.with_interceptor(sees);
  const Attachment beside(ByteVector(10, std::byte{7}));
  CHECK(code_of(peer.one_way("kinds", "take", beside).wait(kSoon)) == Code::kInternal);
  CHECK(code_of(peer.call<Attachment>("kinds", "take", beside).wait(kSoon)) == Code::kInternal);
  auto stream = peer.stream<None, int>("kinds", "stream", beside);
  CHECK(take(stream.read().wait(kSoon)) == 0);  // what is read is not the interceptor's
  const auto end = stream.finish().wait(kSoon);
  CHECK(code_of(end) == Code::kInternal);
  CHECK(end.status().maybe_executed());
  CHECK(sees->bytes == 30);
}

}  // namespace
}  // namespace slime
