// PeerAgentOptions::outage_tolerated: set by option or environment, shown, and what it does to a
// call that waits.
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "base/str.h"
#include "tests/agent/registry.h"
#include "tests/support/blackhole.h"

namespace slime {
namespace {

using namespace test;

constexpr const char* kVariable = "SLIME_OUTAGE_TOLERATED";

// The variable has this value, or none, while it lives.
class Environment {
 public:
  explicit Environment(const char* value) {
    if (const char* before = std::getenv(kVariable); before != nullptr) before_ = before;
    if (value == nullptr)
      ::unsetenv(kVariable);
    else
      ::setenv(kVariable, value, 1);
  }
  ~Environment() {
    if (before_)
      ::setenv(kVariable, before_->c_str(), 1);
    else
      ::unsetenv(kVariable);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::optional<std::string> before_;
};

std::int64_t shown(Nanos outage) {
  PeerAgentOptions options;
  options.outage_tolerated = outage;
  return number_in(to_json(start(std::move(options))->info()), "outage_tolerated_ms");
}

TEST_CASE("the outage tolerated is that of the options, else of the environment, else five seconds") {
  {
    const Environment unset(nullptr);
    CHECK(shown(Nanos::zero()) == 5000);
    CHECK(shown(seconds(30)) == 30'000);
  }
  const Environment set("2.5");
  CHECK(shown(Nanos::zero()) == 2500);
  CHECK(shown(seconds(1)) == 1000);
}

TEST_CASE("an outage out of range is refused, with the range and where it was set") {
  for (const Nanos outage : {Nanos(-1), Nanos(milliseconds(999)), Nanos(seconds(3601)), Nanos::max()}) {
    PeerAgentOptions options;
    options.outage_tolerated = outage;
    const auto agent = PeerAgent::start(std::move(options));
    CHECK(code_of(agent) == Code::kInvalidArgument);
    CHECK(agent.status().text().find("outage_tolerated is ") == 0);
    CHECK(agent.status().text().find("must be 1 to 3600 s") != std::string::npos);
  }
  for (const char* text : {"0", "5s", "", "7200"}) {
    const Environment set(text);
    const auto agent = PeerAgent::start({});
    CHECK(code_of(agent) == Code::kInvalidArgument);
    CHECK(agent.status().text() == str(kVariable, " is '", text, "', must be 1 to 3600 s, in seconds"));
  }
}

TEST_CASE("a call whose peer cannot be reached ends after the outage tolerated, long before its deadline") {
  PeerAgentOptions options;
  options.provider = "tcp";
  options.outage_tolerated = seconds(1);
  std::atomic<bool> there{false};  // outlives the handler
  auto caller = start(options);
  auto owner = start(options);
  rpc::Service service("slow");
  REQUIRE(service
              .add("forever",
                   [&] {
                     there = true;
                     there.wait(true);
                     return 1;
                   })
              .ok());
  REQUIRE(owner->serve(service).ok());
  Peer peer = caller->peer(owner->address());
  auto call = peer.with_timeout(seconds(60)).call<int>("slow", "forever");
  REQUIRE(eventually([&] { return there.load(); }));
  const TimePoint began = steady_clock().now();
  const auto ended = [&] {
    const Blackhole cut(owner->address());
    return call.wait(kSoon);
  }();
  const Nanos took = steady_clock().now() - began;
  there = false;
  there.notify_all();
  MESSAGE("ended after ", std::chrono::duration_cast<milliseconds>(took).count(), " ms");
  CHECK(code_of(ended) == Code::kUnavailable);
  CHECK(ended.status().maybe_executed());
  CHECK(took >= seconds(1));
  CHECK(took <= seconds(3) + patient(seconds(2)));
  // The next use connects again.
  REQUIRE(peer.connect().wait(kSoon).has_value());
}

// The peer cannot be told from one that is unreachable for nanoctrl and for us: its lease expires,
// and it does not answer.
TEST_CASE("a peer whose lease has expired may be silent for the outage tolerated") {
  Registry registry(seconds(3));
  struct Client {
    std::unique_ptr<PeerAgent> agent;
    Peer peer;
    [[nodiscard]] bool connected() const { return has_state(peer, "ready"); }
  };
  const auto start_client = [&](std::string name, Nanos outage) {
    PeerAgentOptions options = options_for(registry, std::move(name));
    options.outage_tolerated = outage;
    return Client{start(std::move(options)), {}};
  };
  Client brief = start_client("brief", seconds(1));
  Client lenient = start_client("lenient", seconds(30));
  PeerAgentOptions options = options_for(registry, "owner");
  options.heartbeat = seconds(60);
  options.progress = Progress::kCaller;
  auto owner = start(std::move(options));
  std::int64_t connections = 0;
  for (Client* client : {&brief, &lenient}) {
    client->peer = client->agent->peer("owner");
    auto connected = client->peer.connect(kSoon);
    // A client may be ready before the owner is. An owner that stops then has made no connection.
    ++connections;
    REQUIRE(eventually([&] {
      owner->poll(Nanos::zero());
      return connected.wait_done(Nanos::zero()) &&
             number_in(to_json(owner->info()), "connections_made") == connections;
    }));
    REQUIRE(client->connected());
  }
  const auto control = registry.client();
  // Nothing drives the owner from here on, so it answers no ping.
  REQUIRE(eventually([&] { return !control->get_peer("default", "owner").has_value(); }));
  const TimePoint began = steady_clock().now();
  REQUIRE(eventually([&] { return !brief.connected(); }));
  MESSAGE("ended after ", std::chrono::duration_cast<milliseconds>(steady_clock().now() - began).count(),
          " ms");
  CHECK(steady_clock().now() - began >= seconds(1));
  CHECK_FALSE(eventually([&] { return !lenient.connected(); }, seconds(2)));
  auto again = lenient.peer.send(1, as_bytes("still here"));
  REQUIRE(eventually([&] { return owner->poll(Nanos::zero()), again.wait_done(Nanos::zero()); }));
  const auto sent = again.wait(kSoon);
  CHECK_MESSAGE(sent.has_value(), sent.status().to_string());
  CHECK(number_in(to_json(lenient.agent->info()), "connections_made") == 1);
}

}  // namespace
}  // namespace slime
