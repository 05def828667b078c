// Two sides with shared memory, a fake adapter and tcp connect over the best provider that both can
// use.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/transport/tcp_host.h"
#include "tests/transport/verbs/fake_fabric.h"
#include "transport/verbs/options.h"
#include "transport/verbs/verbs_provider.h"

namespace slime::transport::testing::verbs_choice_test {
namespace {

// One side, on a loop shared with the other side.
class Side {
 public:
  Side(FakeFabric& fabric, Loop& loop, const std::string& device) {
    for (const char* name : {"shm", "verbs", "tcp"}) {
      verbs::Options options;
      options.device = device;
      auto provider = std::string(name) == "verbs" ? verbs::make_verbs_provider(fabric.functions(), options)
                                                   : std::move(*make_provider(name));
      auto opened = provider->open_device();
      REQUIRE_MESSAGE(opened.has_value(), opened.status().to_string());
      devices_.push_back(std::move(*opened));
      auto port = devices_.back()->open_port(loop);
      REQUIRE_MESSAGE(port.has_value(), port.status().to_string());
      ports_.push_back(std::move(*port));
      outlets.push_back({name, ports_.back().get(), devices_.back().get(), {}, &provider->traits()});
    }
  }
  // Removes this provider's offer.
  void lose(std::string_view provider, const char* why) {
    for (Outlet& outlet : outlets) {
      if (outlet.provider == provider) outlet.available = Status(Code::kUnavailable, why);
    }
  }

  std::vector<Outlet> outlets;

 private:
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Port>> ports_;
};

struct Outcome {
  std::string ours;
  std::string theirs;
};

// Returns each side's connection as "shm: reason", or the error.
Outcome connect_sides(Loop& loop, Side& a, Side& b) {
  TestAcceptor acceptor;
  auto listener = Listener::listen(
      loop, [&] { return b.outlets; }, "127.0.0.1:0", false, as("b"), acceptor);
  REQUIRE(listener.has_value());
  std::unique_ptr<Result<Connected>> mine;
  const auto connecting =
      connect(loop, a.outlets, (*listener)->address(), {}, as("a"),
              [&](Result<Connected> got) { mine = std::make_unique<Result<Connected>>(std::move(got)); });
  const TimePoint end = steady_clock().now() + std::chrono::seconds(20);
  while (steady_clock().now() < end && !(mine && (!*mine || !acceptor.connected.empty())))
    loop.poll(std::chrono::milliseconds(1));
  REQUIRE(mine != nullptr);
  if (!*mine) {
    const Unreached* unreached = connecting->unreached();
    const std::string whom =
        unreached == nullptr ? "" : "unreached: " + unreached->provider + " with " + unreached->peer.name;
    return {mine->status().to_string(), whom};
  }
  REQUIRE(acceptor.connected.size() == 1);
  const auto text = [](const Connected& one) { return one.provider + ": " + one.reason; };
  Outcome out{text(**mine), text(acceptor.connected.front())};
  mine.reset();
  acceptor.connected.clear();
  return out;
}

TEST_CASE("of three providers the first that both can have is taken, whatever was set up before") {
  FakeFabric fabric;
  auto made = Loop::create();
  REQUIRE(made.has_value());
  Loop& loop = **made;
  Side a(fabric, loop, "fake0");
  Side b(fabric, loop, "fake1");
  SUBCASE("everything") {
    const Outcome outcome = connect_sides(loop, a, b);
    CHECK(outcome.ours == "shm: same host and user");
    CHECK(outcome.theirs == "shm: same host and user");
  }
  SUBCASE("the acceptor has no shared memory, for which the initiator had set up") {
    b.lose("shm", "no /proc");
    const Outcome outcome = connect_sides(loop, a, b);
    CHECK(outcome.ours == "verbs: 'b' has no shm: no /proc; both have an active RDMA port");
    CHECK(outcome.theirs == outcome.ours);
  }
  SUBCASE("the initiator has no shared memory: it knows why, the acceptor does not") {
    a.lose("shm", "no /proc");
    const Outcome outcome = connect_sides(loop, a, b);
    CHECK(outcome.ours == "verbs: both have an active RDMA port; no shm here: no /proc");
    CHECK(outcome.theirs == "verbs: both have an active RDMA port");
  }
  SUBCASE("neither shared memory nor an adapter on one side") {
    b.lose("shm", "no /proc");
    b.lose("verbs", "no RDMA device");
    const Outcome outcome = connect_sides(loop, a, b);
    CHECK(outcome.ours == "tcp: 'b' has no shm: no /proc; 'b' has no verbs: no RDMA device");
    CHECK(outcome.theirs == outcome.ours);
  }
  SUBCASE("no shared memory, and a port that goes down") {
    b.lose("shm", "no /proc");
    fabric.set_port_state("fake1", IBV_PORT_DOWN);
    for (int i = 0; i < 10; ++i) loop.poll(Nanos::zero());
    const Outcome outcome = connect_sides(loop, a, b);
    CHECK(outcome.ours == "tcp: 'b' has no shm: no /proc; no active RDMA port: that of 'b' is down");
    fabric.set_port_state("fake1", IBV_PORT_ACTIVE);
    for (int i = 0; i < 10; ++i) loop.poll(Nanos::zero());
    CHECK(connect_sides(loop, a, b).ours.find("verbs: ") == 0);
  }
  SUBCASE("nothing in common") {
    a.lose("tcp", "pinned");
    a.lose("shm", "pinned");
    b.lose("verbs", "no RDMA device");
    const Outcome outcome = connect_sides(loop, a, b);
    CHECK(outcome.ours.find("unavailable: ") == 0);
    CHECK(outcome.ours.find("'a', which connects, offers verbs, 'b' has shm, verbs, tcp") !=
          std::string::npos);
    CHECK(outcome.ours.find("'b' has no verbs: no RDMA device") != std::string::npos);
  }
  SUBCASE("nothing at all") {
    for (const char* name : {"shm", "verbs", "tcp"}) a.lose(name, "gone");
    CHECK(connect_sides(loop, a, b).ours.find("gone") != std::string::npos);
  }
  SUBCASE("the acceptor's port has no room: the next one is taken") {
    for (Side* side : {&a, &b}) side->lose("shm", "no /proc");
    fabric.fail_call(Call::kCreateQp, ENOMEM);
    const Outcome outcome = connect_sides(loop, a, b);
    CHECK(outcome.ours.find("tcp: 'b' has no verbs: ") == 0);
    CHECK(outcome.ours.find("ibv_create_qp") != std::string::npos);
  }
  SUBCASE("the initiator's port has no room: the error says over which provider") {
    for (Side* side : {&a, &b}) side->lose("shm", "no /proc");
    fabric.fail_call(Call::kCreateQp, ENOMEM, 4);  // after those of the acceptor
    const Outcome outcome = connect_sides(loop, a, b);
    CHECK(outcome.ours.find("ibv_create_qp") != std::string::npos);
    CHECK(outcome.theirs == "unreached: verbs with b");
  }
  // The reservations of offers that were not chosen are returned.
  for (const Side* side : {&a, &b}) {
    for (const Outlet& outlet : side->outlets) CHECK(outlet.port->endpoints() == 0);
  }
  for (const Side* side : {&a, &b}) CHECK(side->outlets[0].port->free_slots() == limits::kPoolSlots);
}

}  // namespace
}  // namespace slime::transport::testing::verbs_choice_test
