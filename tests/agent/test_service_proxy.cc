// Proxies of a service on any of its servers: agents of this process and a real registry.

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/str.h"
#include "tests/agent/registry.h"

namespace slime {
namespace {

using namespace test;

// An agent whose service says the agent's name, counts, and can hold, refuse or break.
class Worker {
 public:
  explicit Worker(PeerAgentOptions options, bool serves = true)
      : name_(options.name), agent_(test::start(std::move(options))) {
    if (serves) serve();
  }
  ~Worker() { end(); }
  void serve() {
    rpc::Service service("who");
    REQUIRE(service.add("name", [this] { return ++calls, name_; }, {.doc = "Who answers."}).ok());
    REQUIRE(service
                .add_bytes("greet",
                           [this](Bytes whom) {
                             ++calls;
                             const std::string text = str(as_text(whom), ", says ", name_);
                             return ByteVector(as_bytes(text).begin(), as_bytes(text).end());
                           })
                .ok());
    const auto hold = [this](rpc::Request request) {
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(request));
      ++calls;
    };
    REQUIRE(service.add_raw("hold", hold).ok());
    REQUIRE(service.add_raw("hold_one", hold, {.run = rpc::Run::kInline, .max_running = 1}).ok());
    REQUIRE(service
                .add("fail",
                     [this]() -> Result<int> {
                       ++calls;
                       return Status(Code::kUnavailable, "from the handler of " + name_);
                     })
                .ok());
    REQUIRE(agent_->serve(service).ok());
  }
  void end() {
    release();
    agent_.reset();
  }
  void release() {
    std::vector<rpc::Request> held;
    {
      const std::lock_guard lock(mutex_);
      held.swap(held_);
    }
    for (rpc::Request& request : held) request.reply(rpc::encode_value(name_));
  }
  PeerAgent& agent() { return *agent_; }
  std::atomic<int> calls{0};

 private:
  const std::string name_;
  std::mutex mutex_;
  std::vector<rpc::Request> held_;
  std::unique_ptr<PeerAgent> agent_;
};

std::string who(const ServiceProxy& proxy) { return take(proxy.call<std::string>("name").wait(kSoon)); }

TEST_CASE("calls go to every server of the service, and to nobody else") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  Worker b(options_for(registry, "b"));
  PeerAgentOptions elsewhere = options_for(registry, "c");
  elsewhere.scope = "other";
  Worker c(elsewhere);
  Worker idle(options_for(registry, "idle"), false);
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who");
  std::map<std::string, int> answers;
  for (int i = 0; i < 10; ++i) ++answers[who(proxy)];
  CHECK(answers == std::map<std::string, int>{{"a", 5}, {"b", 5}});
  CHECK(to_json(proxy.info()).find("\"name\":\"b\"") != std::string::npos);
}

TEST_CASE("calls with encoded arguments go to any server, a stream to none") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who");
  CHECK(proxy.raw().call("name", rpc::encode_arguments()).wait(kSoon).has_value());
  CHECK(proxy.raw().one_way("name", rpc::encode_arguments()).wait(kSoon).has_value());
  auto [end, result] = proxy.raw().stream("name", rpc::encode_arguments(), true);
  CHECK(code_of(result.wait(kSoon)) == Code::kUnimplemented);
  CHECK(code_of(end->read().wait(kSoon)) == Code::kUnimplemented);
}

TEST_CASE("calls of bytes go to every server, too, also one-way") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  Worker b(options_for(registry, "b"));
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who");
  const Bytes word = as_bytes("hello");
  const ByteVector hello(word.begin(), word.end());
  std::set<std::string> answers;
  for (int i = 0; i < 4; ++i)
    answers.emplace(as_text(take(proxy.call_bytes("greet", hello).wait(kSoon)).bytes()));
  CHECK(answers == std::set<std::string>{"hello, says a", "hello, says b"});
  take(proxy.one_way_bytes("greet", hello).wait(kSoon));
  CHECK(eventually([&] { return a.calls + b.calls == 5; }));
  const auto wrong = proxy.call_bytes("name", hello).wait(kSoon);
  CHECK(wrong.status().code() == Code::kUnimplemented);
  CHECK_FALSE(wrong.status().maybe_executed());
}

TEST_CASE("a caller-driven agent has proxies too") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  PeerAgentOptions options = options_for(registry, "caller");
  options.progress = Progress::kCaller;
  auto caller = test::start(options);
  CHECK(who(caller->proxy("who")) == "a");
  const auto none = caller->proxy("nothing").wait_for_ready().with_timeout(milliseconds(50));
  CHECK(code_of(none.call<int>("x").wait(kSoon)) == Code::kDeadlineExceeded);
}

TEST_CASE("the registry is not asked for calls: they go on while it is away") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who");
  CHECK(who(proxy) == "a");
  registry.stop();
  for (int i = 0; i < 100; ++i) CHECK(who(proxy) == "a");
}

TEST_CASE("a registry that comes back empty stops no calls") {
  Registry registry;
  PeerAgentOptions slow = options_for(registry, "a");
  slow.heartbeat = patient(seconds(60));  // it will not be listed again
  Worker a(slow);
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who");
  CHECK(who(proxy) == "a");
  registry.stop();
  registry.start();
  REQUIRE(eventually([&] {
    const auto list = caller->list_peers();
    const std::string text = list ? to_json(*list) : "";
    return text.find("\"caller\"") != std::string::npos && text.find("\"a\"") == std::string::npos;
  }));
  // Once another one is found, the list is of the empty registry; and the one that is not in it is
  // still used.
  Worker b(options_for(registry, "b"));
  REQUIRE(eventually([&] { return who(proxy) == "b"; }));
  CHECK(who(proxy) == "a");
  CHECK(who(proxy) == "b");
}

TEST_CASE("servers that come are used, those that close are not missed") {
  Registry registry;
  auto a = std::make_unique<Worker>(options_for(registry, "a"));
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who");
  CHECK(who(proxy) == "a");
  Worker b(options_for(registry, "b"));
  CHECK(eventually([&] { return who(proxy) == "b"; }));
  a->end();
  for (int i = 0; i < 20; ++i) CHECK(who(proxy) == "b");
}

TEST_CASE("a server that drains is passed over") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  Worker b(options_for(registry, "b"));
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who");
  CHECK(who(proxy) != who(proxy));
  REQUIRE(a.agent().drain(kSoon).ok());
  const int before = a.calls;
  for (int i = 0; i < 20; ++i) CHECK(who(proxy) == "b");
  CHECK(a.calls == before);
  REQUIRE(b.agent().drain(kSoon).ok());
  const auto none = proxy.call<std::string>("name").wait(kSoon);
  CHECK(code_of(none) == Code::kUnavailable);
  CHECK_FALSE(none.status().maybe_executed());
  CHECK(none.status().text().find("draining") != std::string::npos);
}

TEST_CASE("without a server the error says service, scope, and what the registry knows") {
  Registry registry;
  auto caller = test::start(options_for(registry, "caller"));
  const auto none = caller->proxy("who").call<int>("name").wait(kSoon);
  CHECK(code_of(none) == Code::kUnavailable);
  CHECK_FALSE(none.status().maybe_executed());
  CHECK(none.status().text() ==
        str("service \"who\" has no live server in scope \"default\": ", registry.url(), " lists none"));
  // And one that has come since is found at once.
  Worker a(options_for(registry, "a"));
  CHECK(who(caller->proxy("who")) == "a");
  registry.stop();
  const auto away = caller->proxy("other").call<int>("name").wait(kSoon);
  CHECK(code_of(away) == Code::kUnavailable);
  CHECK(away.status().text().find("does not answer") != std::string::npos);
}

TEST_CASE("who waits for readiness gets the first server that comes, or the deadline") {
  Registry registry;
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who").wait_for_ready();
  const auto late = proxy.with_timeout(milliseconds(100)).call<std::string>("name").wait(kSoon);
  CHECK(code_of(late) == Code::kDeadlineExceeded);
  CHECK_FALSE(late.status().maybe_executed());
  CHECK(late.status().text().find("lists none") != std::string::npos);
  auto answer = proxy.call<std::string>("name");
  CHECK_FALSE(answer.wait_done(milliseconds(50)));
  Worker a(options_for(registry, "a"));
  CHECK(take(answer.wait(kSoon)) == "a");
}

TEST_CASE("what a server's handler says goes to the caller, and nobody else is called") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  Worker b(options_for(registry, "b"));
  auto caller = test::start(options_for(registry, "caller"));
  const auto failed = caller->proxy("who").call<int>("fail").wait(kSoon);
  CHECK(code_of(failed) == Code::kUnavailable);
  CHECK(failed.status().maybe_executed());
  CHECK(a.calls + b.calls == 1);
  CHECK(code_of(caller->proxy("who").call<int>("name", 1).wait(kSoon)) == Code::kInvalidArgument);
  CHECK(code_of(caller->proxy("who").call<int>("missing").wait(kSoon)) == Code::kNotFound);
}

TEST_CASE("what may be executed twice is tried again with another server, as often as was said") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  Worker b(options_for(registry, "b"));
  auto caller = test::start(options_for(registry, "caller"));
  RetryPolicy retry;
  retry.attempts = 4;
  retry.backoff = retry.backoff_max = milliseconds(1);
  const auto failed = caller->proxy("who").idempotent(retry).call<int>("fail").wait(kSoon);
  CHECK(code_of(failed) == Code::kUnavailable);
  CHECK(failed.status().maybe_executed());
  CHECK(a.calls == 2);
  CHECK(b.calls == 2);
  // One that does not answer in time is left to itself, too.
  retry.attempt_timeout = patient(milliseconds(100));
  auto held = caller->proxy("who").idempotent(retry).call<std::string>("hold");
  CHECK(code_of(held.wait(kSoon)) == Code::kDeadlineExceeded);
  CHECK(a.calls > 2);
  CHECK(b.calls > 2);
  CHECK(a.calls + b.calls == 8);
}

TEST_CASE("least in flight spares a server that is busy") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  Worker b(options_for(registry, "b"));
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who", {.policy = Balance::kLeastInFlight});
  auto held = proxy.call<std::string>("hold");
  REQUIRE(eventually([&] { return a.calls + b.calls == 1; }));
  const std::string busy = a.calls == 1 ? "a" : "b";
  for (int i = 0; i < 10; ++i) CHECK(who(proxy) != busy);
  a.release();
  b.release();
  CHECK(take(held.wait(kSoon)) == busy);
}

TEST_CASE("a server that is full is passed over; when all are, the error says so") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  Worker b(options_for(registry, "b"));
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who", {.policy = Balance::kSticky});
  auto first = proxy.call<std::string>("hold_one");
  REQUIRE(eventually([&] { return a.calls + b.calls == 1; }));
  auto second = proxy.call<std::string>("hold_one");
  REQUIRE(eventually([&] { return a.calls == 1 && b.calls == 1; }));
  const auto third = proxy.call<std::string>("hold_one").wait(kSoon);
  CHECK(code_of(third) == Code::kResourceExhausted);
  CHECK_FALSE(third.status().maybe_executed());
  a.release();
  b.release();
  CHECK(take(first.wait(kSoon)) != take(second.wait(kSoon)));
}

TEST_CASE("sticky proxies stay with one server until it is gone") {
  Registry registry;
  std::map<std::string, std::unique_ptr<Worker>> workers;
  for (const char* name : {"a", "b", "c"})
    workers[name] = std::make_unique<Worker>(options_for(registry, name));
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who", {.policy = Balance::kSticky});
  const std::string first = who(proxy);
  for (int i = 0; i < 10; ++i) CHECK(who(proxy) == first);
  workers[first]->end();
  const std::string second = who(proxy);
  CHECK(second != first);
  for (int i = 0; i < 10; ++i) CHECK(who(proxy) == second);
  // One key leads to one server, from each calling agent.
  auto other = test::start(options_for(registry, "other"));
  for (const char* key : {"x", "y", "z"}) {
    CAPTURE(key);
    const ServiceProxy other_proxy = other->proxy("who", {.policy = Balance::kSticky, .key = key});
    CHECK(who(proxy.with_key(key)) == who(other_proxy));
  }
}

TEST_CASE(
    "names that the registry has no room for hide no other service, and methods with such names are found") {
  Registry registry;
  auto worker = test::start(options_for(registry, "worker"));
  rpc::Service no_name("größe");
  REQUIRE(no_name.add("x", [] { return 1; }).ok());
  REQUIRE(worker->serve(no_name).ok());
  rpc::Service odd("odd");
  REQUIRE(odd.add("in m²", [] { return 2; }).ok());
  REQUIRE(worker->serve(odd).ok());
  rpc::Service service = calculator();
  REQUIRE(worker->serve(service).ok());
  auto caller = test::start(options_for(registry, "caller"));
  CHECK(take(caller->proxy("odd").call<int>("in m²").wait(kSoon)) == 2);
  CHECK(take(caller->proxy("calc").call<int>("add", 1, 2).wait(kSoon)) == 3);
  CHECK(code_of(caller->proxy("odd").call<int>("missing").wait(kSoon)) == Code::kNotFound);
}

TEST_CASE("an agent calls itself where it is the server") {
  Registry registry;
  auto caller = test::start(options_for(registry, "caller"));
  CHECK(code_of(caller->proxy("calc").call<int>("add", 1, 2).wait(kSoon)) == Code::kUnavailable);
  rpc::Service service = calculator();
  REQUIRE(caller->serve(service).ok());
  CHECK(take(caller->proxy("calc").call<int>("add", 1, 2).wait(kSoon)) == 3);
}

TEST_CASE("a live server describes the service") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  auto caller = test::start(options_for(registry, "caller"));
  const auto info = take(caller->proxy("who").describe().wait(kSoon));
  CHECK(info.name == "who");
  REQUIRE(info.methods.size() == 5);
  CHECK(info.methods[4].doc == "Who answers.");
}

TEST_CASE("a cancelled call ends, whether a server has it or none is there") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  auto caller = test::start(options_for(registry, "caller"));
  auto held = caller->proxy("who").call<std::string>("hold");
  REQUIRE(eventually([&] { return a.calls == 1; }));
  held.cancel();
  CHECK(code_of(held.wait(kSoon)) == Code::kCancelled);
  auto waiting = caller->proxy("nothing").wait_for_ready().call<int>("x");
  CHECK_FALSE(waiting.wait_done(milliseconds(20)));
  waiting.cancel();
  CHECK(code_of(waiting.wait(kSoon)) == Code::kCancelled);
}

TEST_CASE("close ends the calls of proxies, and later ones are refused") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  for (const Progress progress : {Progress::kThread, Progress::kCaller}) {
    PeerAgentOptions options = options_for(registry, "caller");
    options.progress = progress;
    auto caller = test::start(options);
    const ServiceProxy proxy = caller->proxy("nothing").wait_for_ready();
    const int calls = a.calls;
    auto waiting = proxy.call<int>("x");
    auto held = caller->proxy("who").idempotent().call<std::string>("hold");
    REQUIRE(eventually([&] {
      static_cast<void>(waiting.wait_done(milliseconds(1)));  // which drives a loop that its callers drive
      return a.calls == calls + 1;
    }));
    caller->close(milliseconds(50)).ignore();
    CHECK(waiting.done());
    CHECK(code_of(waiting.wait(kSoon)) == Code::kUnavailable);
    // What its own agent's close cuts off, as any call: asked for.
    const auto cut = held.wait(kSoon);
    CHECK(code_of(cut) == Code::kCancelled);
    CHECK(cut.status().maybe_executed());
    CHECK(code_of(proxy.call<int>("x").wait(kSoon)) == Code::kUnavailable);
  }
}

TEST_CASE("many threads share one proxy") {
  Registry registry;
  Worker a(options_for(registry, "a"));
  Worker b(options_for(registry, "b"));
  auto caller = test::start(options_for(registry, "caller"));
  const ServiceProxy proxy = caller->proxy("who", {.policy = Balance::kRoundRobin});
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) right += proxy.call<std::string>("name").wait(kSoon).has_value() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 800);
  CHECK(a.calls + b.calls == 800);
  CHECK(a.calls == b.calls);
}

TEST_CASE("a proxy that cannot work says why") {
  auto alone = test::start("alone");
  const auto refused = alone->proxy("who").call<int>("name").wait(kSoon);
  CHECK(code_of(refused) == Code::kInvalidArgument);
  CHECK(refused.status().text().find("ctrl_url") != std::string::npos);
  Registry registry;
  auto caller = test::start(options_for(registry, "caller"));
  CHECK(code_of(caller->proxy("").call<int>("name").wait(kSoon)) == Code::kInvalidArgument);
  CHECK(code_of(caller->proxy("who", {.key = "k"}).call<int>("name").wait(kSoon)) == Code::kInvalidArgument);
  RetryPolicy never;
  never.attempts = 0;
  CHECK(code_of(caller->proxy("who").idempotent(never).call<int>("x").wait(kSoon)) == Code::kInvalidArgument);
  CHECK(code_of(ServiceProxy().call<int>("name").wait(kSoon)) == Code::kInvalidArgument);
}

// Writes down the calls that it sees, and how they ended.
class Log final : public rpc::ClientInterceptor {
 public:
  Status before(rpc::ClientCall& call) override {
    const std::lock_guard lock(mutex_);
    lines_.push_back(str(call.peer, " ", call.service, ".", call.method));
    if (call.method == "secret") return Status(Code::kPermissionDenied, "not from here");
    return call.metadata.set("seen", "yes");
  }
  void after(const rpc::ClientCall& call, const Status& outcome, const rpc::CallTiming&) override {
    const std::lock_guard lock(mutex_);
    lines_.push_back(str(call.method, ": ", code_name(outcome.code())));
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Serves "carry": what metadata a call has, and the bytes beside its arguments; refuses while it is
// busy.
struct Carrier {
  Carrier(Registry& registry, const std::string& name) : agent(test::start(options_for(registry, name))) {
    rpc::Service service("carry");
    REQUIRE(service
                .add("take",
                     [this](const rpc::CallInfo& info, const Attachment& beside) -> Result<Attachment> {
                       const std::lock_guard lock(mutex);
                       noted.push_back(str(info.metadata("user").value_or("-"), " ",
                                           info.metadata("seen").value_or("-"), " ", beside.size()));
                       return beside;
                     })
                .ok());
    REQUIRE(agent->serve(service).ok());
  }
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex);
    return noted;
  }
  std::mutex mutex;
  std::vector<std::string> noted;
  std::unique_ptr<PeerAgent> agent;  // last: its handlers use what is above
};

TEST_CASE("calls of a proxy carry metadata and attachments, are timed, and interceptors see each once") {
  Registry registry;
  Carrier a(registry, "a");
  auto caller = test::start(options_for(registry, "caller"));
  const auto log = std::make_shared<Log>();
  caller->add_interceptor(log);
  const auto timing = std::make_shared<rpc::CallTiming>();
  const ServiceProxy proxy = caller->proxy("carry").with_metadata("user", "ann").with_timing(timing);
  const Attachment beside(ByteVector(200'000, std::byte{7}));
  CHECK(take(proxy.call<Attachment>("take", beside).wait(kSoon)).size() == beside.size());
  CHECK(timing->split);
  CHECK(timing->queue + timing->handler + timing->network == timing->total);
  CHECK(log->take() == std::vector<std::string>{"any server carry.take", "take: ok"});
  CHECK(proxy.one_way("take", beside).wait(kSoon).has_value());
  CHECK_FALSE(timing->split);
  CHECK(log->take() == std::vector<std::string>{"any server carry.take", "take: ok"});
  REQUIRE(eventually([&] { return a.all().size() == 2; }));
  CHECK(a.all() == std::vector<std::string>(2, "ann yes 200000"));
  const auto refused = proxy.call<int>("secret", 1).wait(kSoon);
  CHECK(code_of(refused) == Code::kPermissionDenied);
  CHECK_FALSE(refused.status().maybe_executed());
  const auto nobody = caller->proxy("no one").with_metadata("", "x").call<int>("x").wait(kSoon);
  CHECK(code_of(nobody) == Code::kInvalidArgument);
}

TEST_CASE("what a call of a proxy carries goes with it to the next server, also one-way") {
  Registry registry;
  Carrier a(registry, "a");
  Carrier b(registry, "b");
  auto caller = test::start(options_for(registry, "caller"));
  const auto log = std::make_shared<Log>();
  const ServiceProxy proxy = caller->proxy("carry").with_metadata("user", "ann").with_interceptor(log);
  const Attachment beside(ByteVector(50, std::byte{7}));
  for (int i = 0; i < 2; ++i) CHECK(proxy.call<Attachment>("take", beside).wait(kSoon).has_value());
  CHECK(a.all().size() == 1);
  log->take();
  REQUIRE(a.agent->drain(kSoon).ok());  // refuses calls, which then go to b
  for (int i = 0; i < 4; ++i) CHECK(proxy.call<Attachment>("take", beside).wait(kSoon).has_value());
  CHECK(a.all().size() == 1);
  CHECK(b.all() == std::vector<std::string>(5, "ann yes 50"));
  CHECK(log->take().size() == 8);
  // One that cannot leave goes to the next one as well.
  REQUIRE(a.agent->close().ok());
  for (int i = 0; i < 4; ++i) CHECK(proxy.one_way("take", beside).wait(kSoon).has_value());
  REQUIRE(eventually([&] { return b.all().size() == 9; }));
  CHECK(b.all().back() == "ann yes 50");
  // The call ends with an error where no server is left.
  REQUIRE(b.agent->close().ok());
  const auto gone = proxy.one_way("take", beside).wait(kSoon);
  CHECK(code_of(gone) == Code::kUnavailable);
  CHECK_FALSE(gone.status().maybe_executed());
}

}  // namespace
}  // namespace slime
