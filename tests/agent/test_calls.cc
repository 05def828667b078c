#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/agent/agents.h"
#include "tests/support/bytes.h"
#include "tests/support/sanitizers.h"

// Very many calls: of all sizes, both ways at once; and such as end before their answer.
namespace slime {
namespace {

using namespace test;

constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;                 // of one call
constexpr std::uint64_t kBytesOfACall = (std::uint64_t{20} << 30) / 100'000;  // on average, at most

// Bytes that all bodies are pieces of, so that what comes back is compared with what needs no
// second copy.
class Bodies {
 public:
  explicit Bodies(std::uint64_t most) : bytes_(most + kOffsets) { Rng(most).fill(bytes_); }
  [[nodiscard]] Bytes piece(Rng& rng, std::uint64_t size) const {
    return Bytes(bytes_).subspan(rng.below(kOffsets), size);
  }

 private:
  static constexpr std::uint64_t kOffsets = 4096;
  ByteVector bytes_;
};

// 0 B to `most`, as many of each order of magnitude as of any other below 8 KiB, and above; 90 %
// are below.
std::uint64_t draw_size(Rng& rng, std::uint64_t most) {
  const auto between = [&rng](double low, double high) {
    const double part = static_cast<double>(rng.below(1 << 30)) / (1 << 30);
    return static_cast<std::uint64_t>(std::exp(std::log(low) + part * (std::log(high) - std::log(low))));
  };
  return rng.chance(9, 10) ? between(1, 8193) - 1 : between(8192, static_cast<double>(most));
}

// Echo calls to one peer, some under way at once.
class Caller {
 public:
  Caller(Peer peer, const Bodies& bodies, std::uint64_t seed, std::uint64_t most)
      : peer_(std::move(peer)), bodies_(bodies), rng_(seed), most_(most) {}

  void run(int calls) {
    std::uint64_t left = static_cast<std::uint64_t>(calls) * kBytesOfACall;
    for (int i = 0; i < calls && failure_.empty(); ++i) {
      std::uint64_t size = draw_size(rng_, most_);
      if (size > left) size = std::min<std::uint64_t>(left, 64);
      left -= size;
      const Bytes sent = bodies_.piece(rng_, size);
      under_way_.push_back({sent, peer_.call<ByteVector>("calc", "echo", sent)});
      bytes_under_way_ += size;
      while (under_way_.size() > 32 || bytes_under_way_ > 2 * kMostBytes) finish_first();
    }
    while (!under_way_.empty()) finish_first();
  }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  struct Call {
    Bytes sent;
    Future<ByteVector> reply;
  };
  void finish_first() {
    Call call = std::move(under_way_.front());
    under_way_.pop_front();
    bytes_under_way_ -= call.sent.size();
    bytes_ += call.sent.size();
    const auto reply = call.reply.wait(patient(seconds(120)));
    if (!reply) {
      failure_ = reply.status().to_string();
    } else if (!same(*reply, call.sent)) {
      failure_ = "other bytes came back";
    }
  }

  Peer peer_;
  const Bodies& bodies_;
  Rng rng_;
  const std::uint64_t most_;
  std::deque<Call> under_way_;
  std::uint64_t bytes_under_way_ = 0;
  std::uint64_t bytes_ = 0;
  std::string failure_;
};

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages >> pages;  // of all, then those that are resident
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// Nothing is under way, queued or lent on the connection, as this side sees it.
bool at_rest(const Peer& peer) {
  const std::string info = to_json(peer.info());
  return number_in(info, "calls_in_flight") == 0 && number_in(info, "queued_frames") == 0 &&
         number_in(info, "lent_buffers") == 0 && number_in(info, "in_flight") == 0;
}

}  // namespace

TEST_CASE("both ends call each other on one connection, with bodies of all sizes") {
  const int calls = static_cast<int>(setting("SLIME_TEST_CALLS", scaled(10'000)));
  const auto most = static_cast<std::uint64_t>(setting("SLIME_TEST_CALLS_MOST", std::int64_t{kMostBytes}));
  const auto seed = static_cast<std::uint64_t>(setting("SLIME_TEST_SEED", 20260320));
  const auto a = start("a");
  const auto b = start("b");
  for (PeerAgent* agent : {a.get(), b.get()}) {
    rpc::Service service = calculator();
    REQUIRE(agent->serve(service).ok());
  }
  Peer to_b = a->peer(b->address());
  REQUIRE(take(to_b.call<std::int64_t>("calc", "add", 40, 2).wait(kSoon)) == 42);
  Peer to_a = b->peer("a");
  const Bodies bodies(most);
  Caller forth(to_b, bodies, seed, most);
  Caller back(to_a, bodies, seed + 1, most);
  std::thread other([&] { back.run(calls / 2); });
  forth.run(calls - calls / 2);
  other.join();
  MESSAGE(calls, " calls, seed ", seed, ", ", (forth.bytes() + back.bytes()) >> 20, " MiB each way");
  CHECK(forth.failure() == "");
  CHECK(back.failure() == "");
  CHECK(number_in(to_json(to_b.info()), "connects") == 1);
  CHECK(number_in(to_json(to_a.info()), "connects") <= 1);
  CHECK(eventually([&] { return at_rest(to_a) && at_rest(to_b); }));
}

TEST_CASE("thousands of calls that time out or are cancelled leave nothing behind") {
  const int calls = scaled(10'000);
  const auto seed = static_cast<std::uint64_t>(setting("SLIME_TEST_SEED", 20260321));
  const auto a = start("a");
  const auto b = start("b");
  std::mutex mutex;
  std::vector<rpc::Request> held;
  rpc::Service service = calculator();
  REQUIRE(service
              .add_raw("hold",
                       [&](rpc::Request request) {
                         const std::lock_guard lock(mutex);
                         held.push_back(std::move(request));
                       },
                       {.run = rpc::Run::kInline})
              .ok());
  REQUIRE(b->serve(service).ok());
  Peer peer = a->peer(b->address());
  REQUIRE(take(peer.call<std::int64_t>("calc", "add", 40, 2).wait(kSoon)) == 42);
  Rng rng(seed);
  const Bodies bodies(100'000);
  const auto some_that_fail = [&](int count) {
    std::vector<Future<Payload>> futures;
    std::vector<bool> cancelled;
    for (int i = 0; i < count; ++i) {
      const Bytes body = bodies.piece(rng, rng.chance(1, 10) ? 100'000 : 64);
      const bool cancel = rng.chance(1, 2);
      futures.push_back(peer.raw().call("calc", "hold", rpc::encode_arguments(body),
                                        cancel ? Nanos(seconds(60)) : Nanos(milliseconds(1))));
      cancelled.push_back(cancel);
    }
    for (std::size_t i = 0; i < futures.size(); ++i) {
      if (cancelled[i]) futures[i].cancel();
    }
    for (std::size_t i = 0; i < futures.size(); ++i) {
      const auto reply = futures[i].wait(kSoon);
      CHECK(reply.status().code() == (cancelled[i] ? Code::kCancelled : Code::kDeadlineExceeded));
    }
    const std::lock_guard lock(mutex);
    held.clear();
    return count;
  };
  const auto all_is_well = [&] {
    REQUIRE(take(peer.call<std::int64_t>("calc", "add", 40, 2).wait(kSoon)) == 42);
    const ByteVector large(300'000, std::byte{7});
    REQUIRE(take(peer.call<ByteVector>("calc", "echo", large).wait(kSoon)) == large);
  };
  int done = 0;
  std::uint64_t before = 0;
  while (done < calls) {
    done += some_that_fail(100);
    all_is_well();
    if (done <= calls / 4) before = resident_bytes();
  }
  MESSAGE(done, " calls, seed ", seed, ", resident ", before >> 20, " MiB after a quarter, ",
          resident_bytes() >> 20, " MiB at the end");
  CHECK(eventually([&] {
    const std::lock_guard lock(mutex);
    held.clear();
    return at_rest(peer) && at_rest(b->peer("a"));
  }));
  // Sanitizers keep what was freed.
  if (!kSanitized) CHECK(resident_bytes() < before + (std::uint64_t{8} << 20));
  CHECK(number_in(to_json(peer.info()), "connects") == 1);
}

}  // namespace slime
