// The end of a region: first own operations end, then the adapter's registration, then the memory
// is freed.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <chrono>
#include <thread>

#include "tests/transport/verbs/watched_device.h"
#include "transport/loop.h"

namespace slime::transport::testing {
namespace {

using namespace std::chrono_literals;
using Events = std::vector<std::string>;

// A port with one operation on a region; records the requests that it gets.
class FakePort final : public verbs::RegionUsers {
 public:
  FakePort(WatchedDevice& watched, std::shared_ptr<Loop> loop) : watched_(watched), loop_(std::move(loop)) {}

  void use(const DeviceRegion& region) {
    uses_ = WatchedDevice::impl(region).uses;
    REQUIRE(uses_->add_use());
  }
  void end_use() {
    watched_.events.emplace_back("operation ended");
    std::exchange(uses_, nullptr)->drop_use();
  }
  // If set, the loop never runs the request.
  bool deaf = false;

  void reset_users(const RegionUses* uses) override {
    watched_.events.emplace_back(uses == nullptr ? "reset all" : "reset users");
    if (deaf) return;
    loop_->dispatch([this, uses] {
      if (uses_ != nullptr && (uses == nullptr || uses == uses_)) end_use();
    });
  }
  [[nodiscard]] std::shared_ptr<Loop> users_loop() const override { return loop_; }
  void on_device_event(ibv_event_type, std::uint32_t) override {}

 private:
  WatchedDevice& watched_;
  const std::shared_ptr<Loop> loop_;
  RegionUses* uses_ = nullptr;
};

struct Bench {
  Bench() {
    auto made = Loop::create();
    REQUIRE(made.has_value());
    loop = std::move(*made);
    port = std::make_shared<FakePort>(watched, loop);
    watched.state->add_users(port);
  }
  ~Bench() { loop->stop(); }
  WatchedDevice watched;
  std::shared_ptr<Loop> loop;
  std::shared_ptr<FakePort> port;
};

bool mapped(const std::byte* page) { return msync(const_cast<std::byte*>(page), 1, MS_ASYNC) == 0; }

}  // namespace

TEST_CASE("closing waits for an operation of ours, then ends the registration") {
  Bench bench;
  DeviceRegion region = bench.watched.allocate(4096);
  bench.port->use(region);
  SUBCASE("on a loop that the closer drives") {}
  SUBCASE("on a loop with a thread") { bench.loop->start_thread(); }
  bench.loop->post([&] { bench.loop->add_timer(bench.loop->now() + 20ms, [&] { bench.port->end_use(); }); });
  CHECK(region.close(10s).ok());
  CHECK(bench.watched.events == Events{"operation ended", "deregistered"});
  CHECK_FALSE(WatchedDevice::impl(region).uses->add_use());
  CHECK(region.close().ok());
  CHECK(bench.watched.events.size() == 2);
}

TEST_CASE("an operation that does not end in time is reset, before the registration ends") {
  Bench bench;
  DeviceRegion region = bench.watched.allocate(4096);
  DeviceRegion other = bench.watched.allocate(4096);
  bench.port->use(region);
  SUBCASE("on a loop that the closer drives") {}
  SUBCASE("on a loop with a thread") { bench.loop->start_thread(); }
  const Status status = region.close(10ms);
  CHECK(status.code() == Code::kDeadlineExceeded);
  CHECK(bench.watched.events == Events{"reset users", "operation ended", "deregistered"});
  // Idempotent, with the same result.
  CHECK(region.close().code() == Code::kDeadlineExceeded);
  CHECK(bench.watched.events.size() == 3);
  CHECK(other.close().ok());
}

TEST_CASE("on the loop nothing is waited for: operations are reset at once") {
  Bench bench;
  DeviceRegion region = bench.watched.allocate(4096);
  bench.port->use(region);
  bench.loop->start_thread();
  const TimePoint begin = steady_clock().now();
  const Status status = bench.loop->run([&] { return region.close(60s); });
  CHECK(steady_clock().now() - begin < 30s);
  CHECK(status.code() == Code::kDeadlineExceeded);
  CHECK(bench.watched.events == Events{"reset users", "operation ended", "deregistered"});
}

TEST_CASE("a port that does not react keeps nobody: the registration ends under its operation") {
  Bench bench;
  bench.port->deaf = true;
  DeviceRegion region = bench.watched.allocate(4096);
  bench.port->use(region);
  CHECK(region.close(1ms).code() == Code::kDeadlineExceeded);
  CHECK(bench.watched.events == Events{"reset users", "deregistered"});
  bench.port->end_use();
}

TEST_CASE("closing a range that shares a registration leaves it, but not under work of ours") {
  Bench bench;
  DeviceRegion whole = bench.watched.allocate(8192);
  DeviceRegion part = bench.watched.add(whole.data(), 4096, Rights::kLocal);
  bench.port->use(part);
  SUBCASE("work that can be reset") {
    CHECK(part.close(1ms).code() == Code::kDeadlineExceeded);
    CHECK(bench.watched.events == Events{"reset users", "operation ended"});
  }
  SUBCASE("work that goes on all the same") {
    bench.port->deaf = true;
    CHECK(part.close(1ms).code() == Code::kDeadlineExceeded);
    CHECK(bench.watched.events == Events{"reset users", "deregistered"});
    bench.port->end_use();
  }
}

TEST_CASE("a driver that holds a registration for a peer's work lets it go when all connections are reset") {
  Bench bench;
  DeviceRegion region = bench.watched.allocate(4096);
  bench.watched.deregister_error = EINVAL;
  bench.watched.deregister_failures = 3;
  SUBCASE("closed on a thread of its own") {
    const Status status = region.close();
    CHECK(status.code() == Code::kDeadlineExceeded);
    CHECK(status.text().find("all connections of fake0 were reset") != std::string::npos);
  }
  SUBCASE("closed on the loop") {
    CHECK(bench.loop->run([&] { return region.close(); }).code() == Code::kDeadlineExceeded);
  }
  CHECK(bench.watched.events == Events{"refused to deregister", "reset all", "refused to deregister",
                                       "refused to deregister", "deregistered"});
  CHECK(bench.watched.state->usable().ok());
  CHECK(bench.watched.alive() == 0);
}

TEST_CASE(
    "memory whose registration never ends is never given back, and the device makes no more connections") {
  Bench bench;
  bench.watched.deregister_error = EBUSY;
  bench.watched.deregister_failures = 1'000'000;
  DeviceRegion owned = bench.watched.allocate(8192);
  ByteVector callers(4096);
  DeviceRegion borrowed = bench.watched.add(callers.data(), callers.size());
  const std::byte* const page = owned.data();
  const Status kept = owned.close();
  CHECK(kept.code() == Code::kInternal);
  CHECK(kept.text().find("kept until the process ends") != std::string::npos);
  const Status lent = borrowed.close();
  CHECK(lent.code() == Code::kInternal);
  CHECK(lent.text().find("must not be freed") != std::string::npos);

  CHECK(owned.close().code() == Code::kInternal);  // repeating changes nothing
  owned = DeviceRegion();
  CHECK(mapped(page));
  CHECK(bench.watched.alive() == 2);
  CHECK(bench.watched.state->usable().code() == Code::kInternal);
  CHECK(bench.watched.device->open_port(*bench.loop, {}).status().code() == Code::kInternal);

  // Allow deregistration, since the fabric checks that everything is destroyed.
  bench.watched.deregister_failures = 0;
  for (const Registered& made : bench.watched.registered)
    CHECK(bench.watched.state->context()->functions.dereg_mr(made.mr) == 0);
}

}  // namespace slime::transport::testing
