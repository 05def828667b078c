// Many begin at once, and one connection comes out.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "tests/agent/agents.h"
#include "transport/connect.h"
#include "transport/provider.h"

namespace slime {
namespace {

using namespace test;

struct Sides {
  std::unique_ptr<PeerAgent> a = start("a");
  std::unique_ptr<PeerAgent> b;
  // `queue`: requests that may wait for a worker of b.
  explicit Sides(int queue = 1024) {
    PeerAgentOptions options;
    options.name = "b";
    options.server.queue_limit = static_cast<std::size_t>(queue);
    b = start(options);
    set_log_level(LogLevel::kWarning);
    rpc::Service of_a = calculator();
    rpc::Service of_b = calculator();
    REQUIRE(a->serve(of_a).ok());
    REQUIRE(b->serve(of_b).ok());
  }
  bool one_connection() const {
    return number_in(to_json(a->info()), "connections") == 1 &&
           number_in(to_json(b->info()), "connections") == 1;
  }
};

TEST_CASE("both sides connect at the same moment: one connection survives, no call fails, every time") {
  Sides sides;
  const int rounds = scaled(1000);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    Peer to_b = sides.a->peer(sides.b->address());
    Peer to_a = sides.b->peer(sides.a->address());
    auto first = to_b.call<std::int64_t>("calc", "add", round, 1);
    auto second = to_a.call<std::int64_t>("calc", "add", round, 2);
    const auto one = first.wait(kSoon);
    const auto two = second.wait(kSoon);
    REQUIRE_MESSAGE(one.has_value(), one.status().to_string());
    REQUIRE_MESSAGE(two.has_value(), two.status().to_string());
    REQUIRE(*one == round + 1);
    REQUIRE(*two == round + 2);
    REQUIRE_MESSAGE(eventually([&] { return sides.one_connection(); }),
                    (to_json(sides.a->info()) + "\n" + to_json(sides.b->info())));
    // By name over the survivor, and nothing new is made for it. (An attempt of the other side that
    // was under way may still come in, to be sent away.)
    const auto made = number_in(to_json(sides.a->info()), "connections_made");
    REQUIRE(take(sides.a->peer("b").call<std::int64_t>("calc", "add", 1, 1).wait(kSoon)) == 2);
    REQUIRE(number_in(to_json(sides.a->info()), "connections_made") == made);
    REQUIRE_MESSAGE(eventually([&] { return sides.one_connection(); }),
                    (to_json(sides.a->info()) + "\n" + to_json(sides.b->info())));
    REQUIRE(sides.a->peer("b").disconnect().ok());
    REQUIRE(eventually([&] {
      return number_in(to_json(sides.a->info()), "connections") == 0 &&
             number_in(to_json(sides.b->info()), "connections") == 0;
    }));
  }
}

TEST_CASE("the same with many threads on each side and both drive modes of one") {
  set_log_level(LogLevel::kWarning);
  for (int round = 0; round < scaled(50); ++round) {
    CAPTURE(round);
    const Progress progress = round % 2 == 0 ? Progress::kThread : Progress::kCaller;
    auto a = start("a", progress);
    auto b = start("b");
    rpc::Service of_a = calculator();
    rpc::Service of_b = calculator();
    REQUIRE(a->serve(of_a).ok());
    REQUIRE(b->serve(of_b).ok());
    std::atomic<int> good{0};
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        if (a->peer(b->address()).call<std::int64_t>("calc", "add", 1, 1).wait(kSoon)) ++good;
      });
      threads.emplace_back([&] {
        if (b->peer(a->address()).call<std::int64_t>("calc", "add", 1, 1).wait(kSoon)) ++good;
      });
    }
    std::thread driver([&] {
      while (progress == Progress::kCaller && !done) a->poll(milliseconds(5));
    });
    for (auto& thread : threads) thread.join();
    const bool settled = eventually([&] {
      return number_in(to_json(a->info()), "connections") == 1 &&
             number_in(to_json(b->info()), "connections") == 1;
    });
    done = true;
    driver.join();
    CHECK(good.load() == 8);
    CHECK_MESSAGE(settled, (to_json(a->info()) + "\n" + to_json(b->info())));
    std::thread closer([&] { b->close().ignore(); });
    a->close().ignore();
    closer.join();
  }
}

TEST_CASE("a thousand threads that first use a peer make one connection") {
  const int count = scaled(1000);
  Sides sides(count);  // all of them may call at once
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  std::atomic<bool> go{false};
  Peer peer = sides.a->peer(sides.b->address());
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i, mine = peer]() mutable {
      go.wait(false);
      const auto sum = mine.call<std::int64_t>("calc", "add", i, 1).wait(seconds(30));
      if (sum && *sum == i + 1) ++good;
    });
  }
  go = true;
  go.notify_all();
  for (auto& thread : threads) thread.join();
  CHECK(good.load() == count);
  CHECK(number_in(to_json(sides.a->info()), "connections_made") == 1);
  CHECK(number_in(to_json(sides.b->info()), "connections_made") == 1);
}

TEST_CASE("one peer under two names is one connection") {
  Sides sides;
  const std::string address = sides.b->address();
  const std::string port = address.substr(address.rfind(':'));
  auto one = sides.a->peer(address).call<std::int64_t>("calc", "add", 1, 1);
  auto two = sides.a->peer("localhost" + port).call<std::int64_t>("calc", "add", 1, 1);
  auto three = sides.a->peer("tcp://" + address).call<std::int64_t>("calc", "add", 1, 1);
  CHECK(one.wait(kSoon).has_value());
  CHECK(two.wait(kSoon).has_value());
  CHECK(three.wait(kSoon).has_value());
  CHECK_MESSAGE(eventually([&] { return sides.one_connection(); }), to_json(sides.a->info()));
}

// Connects to an agent under the identity of another one, and says nothing.
class Impostor {
 public:
  Impostor(const PeerAgent& agent, const PeerAgent& as)
      : device_(take(take(transport::make_provider(endpoint_provider()))->open_device())),
        loop_(take(transport::Loop::create())),
        port_(take(device_->open_port(*loop_))) {
    loop_->start_thread();
    transport::HandshakeOptions options;
    options.self = {as.name(), *InstanceId::parse(instance_of(as))};
    options.provider = endpoint_provider();
    loop_->run([&] {
      connecting_ =
          transport::connect(*loop_, *port_, agent.address(), {}, std::move(options),
                             [this](Result<transport::Connected> made) { made_ = std::move(made); });
    });
    REQUIRE(eventually([&] { return loop_->run([&] { return made_.has_value(); }); }));
    REQUIRE(made_->status().to_string() == "ok");
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;
  ~Impostor() {
    loop_->run([this] {
      connecting_.reset();
      made_.reset();
      port_.reset();
    });
  }
  static std::string instance_of(const PeerAgent& agent) {
    const std::string info = to_json(agent.info());
    const std::string key = "\"instance\":\"";
    return info.substr(info.find(key) + key.size(), 32);
  }

 private:
  std::unique_ptr<transport::Device> device_;
  std::shared_ptr<transport::Loop> loop_;
  std::unique_ptr<transport::Port> port_;
  std::unique_ptr<transport::Connecting> connecting_;
  std::optional<Result<transport::Connected>> made_;
};

TEST_CASE("a connection of the peer's that it gives up holds up no operation, and is no failure of ours") {
  auto a = start("a");
  auto b = start("b", Progress::kCaller);
  while (Impostor::instance_of(*a) < Impostor::instance_of(*b)) a = start("a");  // a decides between two
  set_log_level(LogLevel::kWarning);
  rpc::Service service = calculator();
  REQUIRE(b->serve(service).ok());
  Peer to_b = a->peer(b->address());
  const auto polled = [&](auto&& condition) {
    return eventually([&] {
      b->poll(milliseconds(1));
      return condition();
    });
  };
  const auto calls = [&] {
    auto call = to_b.call<std::int64_t>("calc", "add", 1, 1);
    REQUIRE(polled([&] { return call.done(); }));
    return call.wait();
  };
  REQUIRE(calls().has_value());
  auto impostor = std::make_unique<Impostor>(*a, *b);
  REQUIRE(eventually([&] { return number_in(to_json(a->info()), "connections") == 2; }));
  // The one that was held back takes the place of the first.
  REQUIRE(to_b.disconnect().ok());
  REQUIRE(polled([&] { return has_state(to_b, "handshaking"); }));
  impostor.reset();
  REQUIRE(polled([&] { return number_in(to_json(a->info()), "connections") == 0; }));
  const auto sum = calls();
  CHECK_MESSAGE(sum.has_value(), sum.status().to_string());
  std::thread closer([&] { a->close().ignore(); });
  b->close().ignore();
  closer.join();
}

TEST_CASE("above the limit the connection that was idle for longest closes, and opens again on use") {
  set_log_level(LogLevel::kWarning);
  PeerAgentOptions options;
  options.name = "hub";
  options.max_connections = 3;
  auto hub = start(options);
  std::vector<std::unique_ptr<PeerAgent>> spokes;
  for (int i = 0; i < 6; ++i) {
    spokes.push_back(start("spoke-" + std::to_string(i)));
    rpc::Service service = calculator();
    REQUIRE(spokes.back()->serve(service).ok());
  }
  for (int turn = 0; turn < 3; ++turn) {
    for (const auto& spoke : spokes) {
      const auto sum = hub->peer(spoke->address()).call<std::int64_t>("calc", "add", 1, 1).wait(kSoon);
      REQUIRE_MESSAGE(sum.has_value(), sum.status().to_string());
      // The first one is in use all the time, and stays.
      REQUIRE(
          hub->peer(spokes[0]->address()).call<std::int64_t>("calc", "add", 1, 1).wait(kSoon).has_value());
    }
  }
  CHECK(eventually([&] { return number_in(to_json(hub->info()), "connections") <= 3; }));
  CHECK(number_in(to_json(spokes[0]->info()), "connections_made") == 1);
  CHECK(number_in(to_json(spokes[1]->info()), "connections_made") == 3);
}

}  // namespace
}  // namespace slime
