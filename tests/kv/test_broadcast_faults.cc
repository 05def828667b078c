// Broadcasts whose processes die or freeze: readers of a dead or frozen parent go on with another
// one, and a fetch succeeds only with all bytes.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/kv/broadcasts.h"
#include "tests/support/process.h"

namespace slime::kv::broadcast_faults_test {
namespace {

using namespace slime::kv::test;
using slime::test::patient;
using slime::test::Process;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Nanos kSoon = patient(seconds(20));
constexpr std::uint64_t kBytes = 64 << 20;

template <class T>
T take(Result<T> result) {
  INFO(result.status().to_string());
  REQUIRE(result.has_value());
  return std::move(*result);
}

Process spawn(const std::string& role, const std::string& owner = {}) {
  std::vector<std::string> argv{slime::test::program_beside_this("kv_broadcast_peer"), role,
                                std::to_string(kBytes)};
  if (!owner.empty()) argv.push_back(owner);
  return take(Process::spawn(std::move(argv)));
}

// An owner and a reader of this process, and between them a reader in a child: fan-out 1.
struct Chain {
  Chain() : owner_agent(broadcast_agent()), agent(broadcast_agent()), source({kBytes}), copy({kBytes}) {
    source.fill(1);
    broadcast = take(Broadcast::over(*owner_agent, source.named(), fault_options()));
    replica = take(Replica::over(*agent, copy.named()));
    child = std::make_unique<Process>(spawn("reader", owner_agent->address()));
    CHECK(take(child->read_line(kSoon)) == "ready");
    REQUIRE(slime::test::eventually([&] { return broadcast.info().readers == 1; }));
    move = replica.fetch(agent->peer(owner_agent->address()), kSoon);
  }
  // Stops the child while this process's reader has some of its bytes, and not all.
  bool stop_on_the_way() {
    while (move.progress().bytes_done == 0 && !move.future().done()) {
    }
    REQUIRE(child->stop().ok());
    const MoveProgress now = move.progress();
    return now.bytes_done < now.bytes_total;
  }
  std::unique_ptr<PeerAgent> owner_agent;
  std::unique_ptr<PeerAgent> agent;
  Parts source;
  Parts copy;
  Broadcast broadcast;
  Replica replica;
  std::unique_ptr<Process> child;
  Move move;
};

// Makes chains until one is caught on the way, which a fast machine may need.
std::unique_ptr<Chain> caught_chain() {
  for (int attempt = 0; attempt < 20; ++attempt) {
    auto chain = std::make_unique<Chain>();
    if (chain->stop_on_the_way()) return chain;
    REQUIRE(chain->move.wait(kSoon).has_value());
  }
  FAIL("no transfer was caught on the way");
  return nullptr;
}

// Returns whether the reader went on with another parent. Over shared memory it need not, if it
// knew already that its parent had all: it reads the rest without the parent's help.
bool check_all_arrived(Chain& chain) {
  const Status status = chain.move.wait(kSoon).status();
  INFO(status.to_string());
  REQUIRE(status.ok());
  CHECK(chain.copy.wrong_bytes(1) == 0);
  const BroadcastInfo info = chain.broadcast.info();
  if (info.moves == 0) return false;
  CHECK(info.from_owner == 1);
  // Chunks that came over the child are not read again: all that left the owner fits in two copies.
  CHECK(info.bytes_out < 2 * info.total_bytes);
  return true;
}

// Runs `test` on chains that were caught on the way, until one had to be routed around.
void until_routed_around(const std::function<bool(Chain&)>& test) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    if (test(*caught_chain())) return;
  }
  FAIL("no reader went on with another parent");
}

}  // namespace

TEST_CASE("a parent that is killed on the way is routed around") {
  until_routed_around([](Chain& chain) {
    REQUIRE(chain.child->kill().ok());
    REQUIRE(chain.child->wait(kSoon).has_value());
    const bool routed = check_all_arrived(chain);
    CHECK(slime::test::eventually([&] { return chain.broadcast.info().readers == 1; }));
    return routed;
  });
}

TEST_CASE("a parent that is frozen on the way is routed around") { until_routed_around(check_all_arrived); }

TEST_CASE("a reader that was frozen for too long ends with an error, or with all bytes") {
  const auto chain = caught_chain();
  check_all_arrived(*chain);
  REQUIRE(chain->child->resume().ok());
  const std::string end = take(chain->child->read_line(kSoon));
  INFO(end);
  // It may have had all bytes already when it was stopped.
  CHECK((end == "fetched" || end.starts_with("aborted") || end.starts_with("unavailable") ||
         end.starts_with("deadline_exceeded")));
}

TEST_CASE("an owner that is killed ends a fetch with unavailable") {
  Process owner = spawn("owner");
  const std::string address = take(owner.read_line(kSoon));
  const auto agent = broadcast_agent();
  Parts copy({kBytes});
  Replica replica = take(Replica::over(*agent, copy.named()));
  Move move = replica.fetch(agent->peer(address), kSoon);
  while (move.progress().bytes_done == 0 && !move.future().done()) {
  }
  REQUIRE(owner.kill().ok());
  const Status status = move.wait(kSoon).status();
  INFO(status.to_string());
  if (status.ok()) {
    CHECK(copy.wrong_bytes(1) == 0);
  } else {
    CHECK(status.code() == Code::kUnavailable);
  }
  REQUIRE(owner.wait(kSoon).has_value());
  CHECK(replica.fetch(agent->peer(address), patient(seconds(2))).wait(kSoon).status().code() ==
        Code::kUnavailable);
}

TEST_CASE("an owner that is frozen ends a fetch at its timeout") {
  Process owner = spawn("owner");
  const std::string address = take(owner.read_line(kSoon));
  const auto agent = broadcast_agent();
  Parts copy({kBytes});
  Replica replica = take(Replica::over(*agent, copy.named()));
  REQUIRE(agent->peer(address).connect(kSoon).wait().has_value());
  REQUIRE(owner.stop().ok());
  Move move = replica.fetch(agent->peer(address), milliseconds(400));
  const Status status = move.wait(kSoon).status();
  INFO(status.to_string());
  CHECK((status.code() == Code::kDeadlineExceeded || status.code() == Code::kUnavailable));
  CHECK(!status.wait_timeout());
  CHECK(replica.version() == 0);
}

// Returns how long the destructor of a replica takes whose fetch has begun.
Nanos destroy(Replica replica, Move& move) {
  const TimePoint begin = steady_clock().now();
  replica = Replica();
  CHECK(move.future().done());
  return steady_clock().now() - begin;
}

TEST_CASE("a replica ends within 2 s whose fetch waits for a frozen owner") {
  Process owner = spawn("owner");
  const std::string address = take(owner.read_line(kSoon));
  const auto agent = broadcast_agent();
  Parts copy({kBytes});
  Replica replica = take(Replica::over(*agent, copy.named()));
  REQUIRE(agent->peer(address).connect(kSoon).wait().has_value());
  REQUIRE(owner.stop().ok());
  Move move = replica.fetch(agent->peer(address), kSoon);
  REQUIRE(slime::test::eventually([&] { return agent->info().operations_in_flight > 0; }));
  CHECK(destroy(std::move(replica), move) < patient(seconds(2)));
  CHECK(move.wait(kSoon).status().code() == Code::kCancelled);
}

TEST_CASE("a replica ends within 2 s whose parent was frozen on the way") {
  const auto chain = caught_chain();
  CHECK(destroy(std::move(chain->replica), chain->move) < patient(seconds(2)));
}

}  // namespace slime::kv::broadcast_faults_test
