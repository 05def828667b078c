// What the registry says of a process that is killed. Real processes, real signals.
#include <doctest/doctest.h>

#include <optional>

#include "ctrl/client.h"
#include "tests/e2e/world.h"

namespace slime::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanos kTtl = seconds(2);

std::unique_ptr<ctrl::Client> client_of(const Nanoctrl& nanoctrl) {
  ctrl::ClientOptions options;
  options.url = nanoctrl.url();
  auto client = ctrl::Client::create(std::move(options));
  REQUIRE(client.has_value());
  return std::move(*client);
}

// One second in the acceptance of a release build; sanitizers on a busy machine get more.
Nanos grace() { return milliseconds(setting("SLIME_E2E_BOUND_MS", 1000)); }

// The scope's changes in order, as a permanent watcher receives them.
class Watcher {
 public:
  explicit Watcher(const Nanoctrl& nanoctrl) : client_(client_of(nanoctrl)) {
    const auto now = client_->watch("default", 0, Nanos::zero());
    REQUIRE_MESSAGE(now.has_value(), now.status().to_string());
    since_ = now->revision;
  }
  // The next change of that kind, if it comes in time.
  std::optional<ctrl::Event> next(ctrl::EventKind kind, Nanos bound) {
    const TimePoint end = deadline_after(steady_clock().now(), bound);
    while (steady_clock().now() < end) {
      const auto changes = client_->watch("default", since_, end - steady_clock().now());
      REQUIRE_MESSAGE(changes.has_value(), changes.status().to_string());
      since_ = changes->revision;
      for (const ctrl::Event& event : changes->events) {
        if (event.kind == kind) return event;
      }
    }
    return std::nullopt;
  }

 private:
  const std::unique_ptr<ctrl::Client> client_;
  std::uint64_t since_ = 0;
};

}  // namespace

TEST_CASE("watchers hear that a killed agent's lease has ended, within the lease and a second") {
  const Nanoctrl nanoctrl({"--ttl", "2"});
  Process victim = start_peer("victim", nanoctrl.url(), 4096);
  Watcher watcher(nanoctrl);
  REQUIRE(victim.kill().ok());
  const auto expired = watcher.next(ctrl::EventKind::kExpired, kTtl + grace());
  REQUIRE(expired);
  CHECK(expired->name == "victim");
}

TEST_CASE("the name of a killed agent is free at once, and what the dead one still sends changes nothing") {
  // So long that no lease ends by itself.
  const Nanoctrl nanoctrl({"--ttl", "600"});
  const auto client = client_of(nanoctrl);
  Process victim = start_peer("victim", nanoctrl.url(), 4096);
  const auto old = client->get_peer("default", "victim");
  REQUIRE(old.has_value());
  Watcher watcher(nanoctrl);
  REQUIRE(victim.kill().ok());
  REQUIRE(victim.wait(kReady).has_value());

  // A registration under the name makes nanoctrl probe the holder, which is gone.
  const TimePoint asked = steady_clock().now();
  ctrl::Registration successor;
  successor.name = "victim";
  successor.instance = InstanceId::random();
  successor.address = "127.0.0.1:1";
  const auto lease = client->register_peer(successor);
  REQUIRE_MESSAGE(lease.has_value(), lease.status().to_string());
  CHECK(lease->incarnation > old->incarnation);
  const auto expired = watcher.next(ctrl::EventKind::kExpired, grace());
  REQUIRE(expired);
  CHECK(expired->incarnation == old->incarnation);
  CHECK(steady_clock().now() - asked < grace());

  const auto late = client->heartbeat("default", "victim", old->incarnation, {});
  CHECK(late.status().code() == Code::kAborted);  // 410
  CHECK(client->deregister("default", "victim", old->incarnation, {}).code() == Code::kAborted);
  const auto now = client->get_peer("default", "victim");
  REQUIRE(now.has_value());
  CHECK(now->incarnation == lease->incarnation);
}

TEST_CASE(
    "a process that takes the place of a killed one is there within a second, as the next incarnation") {
  const Nanoctrl nanoctrl({"--ttl", "600"});
  const auto client = client_of(nanoctrl);
  Process victim = start_peer("victim", nanoctrl.url(), 4096);
  const auto old = client->get_peer("default", "victim");
  REQUIRE(old.has_value());
  REQUIRE(victim.kill().ok());
  REQUIRE(victim.wait(kReady).has_value());
  const TimePoint began = steady_clock().now();
  const auto successor = start_agent("victim", nanoctrl.url());
  CHECK(steady_clock().now() - began < grace());
  const auto now = client->get_peer("default", "victim");
  REQUIRE(now.has_value());
  CHECK(now->incarnation > old->incarnation);
}

}  // namespace slime::test
