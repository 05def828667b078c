// Gives up receives and reads of streams at random: no message is lost, doubled or out of order.
#include <atomic>
#include <cstring>
#include <thread>

#include "base/random.h"
#include "tests/agent/agents.h"

namespace slime::given_up_test {
namespace {

using namespace test;
using std::chrono::microseconds;

constexpr std::uint64_t kTag = 5;
constexpr int kAhead = 2000;  // half of what an inbox holds

std::uint64_t seed() {
  const auto seed = static_cast<std::uint64_t>(setting("SLIME_TEST_SEED", 20261124));
  MESSAGE("SLIME_TEST_SEED=", seed);
  return seed;
}
int messages() { return static_cast<int>(setting("SLIME_TEST_MESSAGES", scaled(3000))); }

// Two agents; the receiver is connected to the sender.
struct Ends {
  explicit Ends(Progress progress)
      : sender(start("sender")),
        receiver(start("receiver", progress)),
        back(receiver->peer(sender->address())) {
    REQUIRE(back.connect().wait(kSoon).has_value());
  }
  std::unique_ptr<PeerAgent> sender;
  std::unique_ptr<PeerAgent> receiver;
  Peer back;
};

// Takes 0, 1, 2, ... with the futures of `ask`, and gives some of them up in each way.
template <class Ask, class Number>
void take_all(int count, Ask ask, Number number) {
  Rng rng(seed());
  int next = 0;
  int misses = 0;
  while (next < count && misses < 100'000) {
    auto future = ask();
    const Nanos patience = microseconds(static_cast<std::int64_t>(rng.below(300)));
    ++misses;
    switch (rng.below(4)) {
      case 0:
        continue;  // dropped at once
      case 1:
        future.wait_done(patience);
        continue;  // dropped with or without its message
      case 2:
        future.wait_done(patience);
        future.cancel();
        break;
      default:
        break;
    }
    const auto outcome = future.wait(rng.below(8) == 0 ? milliseconds(50) : patience);
    if (!outcome) continue;
    REQUIRE(number(*outcome) == next);
    ++next;
    misses = 0;
  }
  CHECK(next == count);
}

TEST_CASE("receives that are given up at random lose no message") {
  Progress progress = Progress::kThread;
  SUBCASE("a thread of the agent's own") {}
  SUBCASE("the caller drives") { progress = Progress::kCaller; }
  Ends ends(progress);
  const int count = messages();
  Status sent;
  std::atomic<int> received{0};  // so that the sender stays within what an inbox holds
  std::thread sending([&, peer = ends.sender->peer("receiver")]() mutable {
    for (std::int64_t i = 0; i < count; ++i) {
      if (!eventually([&] { return i - received < kAhead; })) return;
      sent = peer.send(kTag, Bytes(reinterpret_cast<const std::byte*>(&i), sizeof i)).wait(kSoon).status();
      if (!sent.ok()) return;
    }
  });
  take_all(
      count, [&] { return ends.back.recv(kTag); },
      [&](const Payload& message) {
        std::int64_t number = -1;
        if (message.bytes().size() == sizeof number)
          std::memcpy(&number, message.bytes().data(), sizeof number);
        ++received;
        return number;
      });
  sending.join();
  CHECK_MESSAGE(sent.ok(), sent.to_string(), to_json(ends.receiver->info()));
  CHECK(number_in(to_json(ends.receiver->info()), "receives_given_back") > 0);
  CHECK(number_in(to_json(ends.back.info()), "receives_given_back") > 0);
}

TEST_CASE("reads of a stream that are given up at random lose no message") {
  Progress progress = Progress::kThread;
  SUBCASE("a thread of the agent's own") {}
  SUBCASE("the caller drives") { progress = Progress::kCaller; }
  Ends ends(progress);
  const int count = messages();
  rpc::Service service("numbers");
  REQUIRE(service
              .add("count",
                   [](rpc::ServerStream<None, int>& out, int n) -> Status {
                     for (int i = 0; i < n; ++i)
                       if (auto written = out.write(i).wait(); !written) return written.error();
                     return {};
                   })
              .ok());
  REQUIRE(ends.sender->serve(service).ok());
  auto stream = ends.back.with_timeout(seconds(300)).stream<None, int>("numbers", "count", count);
  take_all(
      count, [&] { return stream.read(); },
      [](const std::optional<int>& number) { return number.value_or(-1); });
  CHECK(take(stream.read().wait(kSoon)) == std::nullopt);
  CHECK(stream.finish().wait(kSoon).has_value());
}

}  // namespace
}  // namespace slime::given_up_test
