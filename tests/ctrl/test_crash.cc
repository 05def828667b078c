#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "base/random.h"
#include "base/str.h"
#include "ctrl/client.h"
#include "tests/ctrl/nanoctrl.h"
#include "tests/ctrl/redis_server.h"
#include "tests/ctrl/samples.h"
#include "tests/support/eventually.h"
#include "tests/support/folder.h"
#include "tests/support/settings.h"

// Kills nanoctrl many times while agents register and deregister, and starts it again on its store.
// Nothing that was acknowledged may be lost.
namespace slime::ctrl {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using slime::test::scaled;
using test::Nanoctrl;

constexpr int kWriters = 3;
constexpr int kNames = 40;  // per writer

// Registers and deregisters agents one after another, and records nanoctrl's replies.
class Writer {
 public:
  Writer(int number, std::uint64_t seed) : number_(number), rng_(seed) {}

  // Runs until nanoctrl is gone, or `stop`.
  void run(Client& client, std::atomic<int>& acknowledged, const std::atomic<bool>& stop) {
    while (!stop.load() && step(client)) acknowledged.fetch_add(1);
  }
  // Checks that everything acknowledged is as the reply said.
  void check(Client& client) {
    const Result<PeerList> list = client.list_peers();
    REQUIRE(list);
    std::map<std::string, std::uint64_t> there;
    for (const PeerInfo& peer : list->peers) there[peer.name] = peer.incarnation;
    CHECK(list->revision >= revision_);
    for (const auto& entry : held_) {
      const std::string& name = entry.first;
      if (unknown_.contains(name)) continue;
      const auto it = there.find(name);
      REQUIRE_MESSAGE(it != there.end(), name << " is lost");
      CHECK(it->second == entry.second);
    }
    for (int i = 0; i < kNames; ++i) {
      const std::string name = name_of(i);
      if (!held_.contains(name) && !unknown_.contains(name))
        CHECK_MESSAGE(!there.contains(name), name << " is back");
    }
    // Look up operations with unknown outcome, as an agent that starts again would.
    for (const std::string& name : unknown_) {
      there.contains(name) ? static_cast<void>(held_[name] = there[name])
                           : static_cast<void>(held_.erase(name));
    }
    unknown_.clear();
  }

 private:
  std::string name_of(int i) const { return str("writer-", number_, "/peer-", i); }
  bool step(Client& client) {
    const std::string name = name_of(static_cast<int>(rng_.below(kNames)));
    const auto it = held_.find(name);
    Status status;
    if (it != held_.end() && rng_.chance(1, 2)) {
      status = client.deregister("default", name, it->second, test::session());
      if (status.ok()) held_.erase(it);
    } else {
      const Result<Lease> lease = client.register_peer(
          test::registration(name, static_cast<std::uint8_t>(number_ + 1)), test::session());
      status = lease.status();
      if (lease) {
        if (it == held_.end()) CHECK(lease->incarnation > incarnation_);
        held_[name] = lease->incarnation;
        incarnation_ = std::max(incarnation_, lease->incarnation);
        revision_ = std::max(revision_, lease->revision);
      }
    }
    if (status.ok()) return true;
    CHECK(status.code() == Code::kUnavailable);
    unknown_.insert(name);
    return false;
  }

  const int number_;
  Rng rng_;
  std::map<std::string, std::uint64_t> held_;
  std::set<std::string> unknown_;  // under way when nanoctrl was killed
  std::uint64_t incarnation_ = 0;
  std::uint64_t revision_ = 0;
};

std::uint64_t new_seed() {
  std::uint64_t seed = 0;
  random_bytes(std::as_writable_bytes(std::span(&seed, 1)));
  seed = static_cast<std::uint64_t>(
      slime::test::setting("SLIME_TEST_SEED", static_cast<std::int64_t>(seed >> 1)));
  MESSAGE("seed ", seed);
  return seed;
}

// Runs each writer through its server until together they have made `enough` steps, then calls
// `kill`. Returns the number of steps.
template <class Kill>
int write_until_killed(std::vector<Writer>& writers, const std::vector<Nanoctrl*>& servers, int enough,
                       Kill kill) {
  std::atomic<int> acknowledged{0};
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<Client>> clients;
  for (const Nanoctrl* server : servers) clients.push_back(server->client());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < writers.size(); ++i)
    threads.emplace_back([&, i] { writers[i].run(*clients[i], acknowledged, stop); });
  const bool reached = eventually([&] { return acknowledged.load() >= enough; });
  kill();
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  REQUIRE(reached);
  return acknowledged.load();
}

TEST_CASE("nanoctrl that is killed while it writes loses nothing that it acknowledged") {
  Rng rng(new_seed());
  const slime::test::Folder folder;
  const std::string store = "sqlite:" + folder.file("registry.db");
  std::vector<Writer> writers;
  for (int i = 0; i < kWriters; ++i) writers.emplace_back(i, rng.next());
  int total = 0;
  const int rounds = scaled(20);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    Nanoctrl server(store);
    const std::unique_ptr<Client> reader = server.client();
    for (Writer& writer : writers) writer.check(*reader);
    total += write_until_killed(writers, {&server, &server, &server}, 1 + static_cast<int>(rng.below(60)),
                                [&] { server.kill(); });
  }
  MESSAGE(rounds, " kills, ", total, " changes acknowledged");
}

TEST_CASE("of two nanoctrl on one Redis either may be killed, and the other has what it acknowledged") {
  Rng rng(new_seed());
  const test::RedisServer redis;
  std::vector<Writer> writers;
  for (int i = 0; i < 2 * kWriters; ++i) writers.emplace_back(i, rng.next());
  std::optional<Nanoctrl> servers[2];
  for (auto& server : servers) server.emplace(redis.url());
  int total = 0;
  const int rounds = scaled(20);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const std::size_t victim = rng.below(2);
    std::vector<Nanoctrl*> used;
    for (std::size_t i = 0; i < writers.size(); ++i) used.push_back(&*servers[i % 2]);
    total += write_until_killed(writers, used, 1 + static_cast<int>(rng.below(120)),
                                [&] { servers[victim]->kill(); });
    const std::unique_ptr<Client> reader = servers[1 - victim]->client();
    // Answered after all earlier entries, which the other nanoctrl has acknowledged.
    REQUIRE(reader->register_peer(test::registration("reader", 99), {}, true));
    for (Writer& writer : writers) writer.check(*reader);
    servers[victim].emplace(redis.url());
    const std::unique_ptr<Client> late = servers[victim]->client();
    for (Writer& writer : writers) writer.check(*late);
  }
  MESSAGE(rounds, " kills, ", total, " changes acknowledged");
}

}  // namespace
}  // namespace slime::ctrl
