#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/random.h"
#include "base/str.h"
#include "ctrl/client.h"
#include "tests/ctrl/samples.h"
#include "tests/support/eventually.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

// nanoctrl is killed while agents register and say goodbye, and started again on its file, many times.
// Nothing that it acknowledged may be lost.
namespace slime::ctrl {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using slime::test::Process;
using slime::test::scaled;

constexpr int kWriters = 3;
constexpr int kNames = 40;  // of each writer

class Nanoctrl {
 public:
  explicit Nanoctrl(const std::string& store) {
    Result<Process> spawned = Process::spawn({NANOCTRL_PATH, "server", "--port", "0", "--ttl", "600",
                                              "--store", store, "--log-level", "warning", "--json"},
                                             {"SLIME_RUNTIME_DIR=" + folder_.path().string()});
    REQUIRE(spawned);
    process_.emplace(std::move(*spawned));
    const Result<std::string> line = process_->read_line(60s);
    REQUIRE(line);
    const auto said = nlohmann::json::parse(*line);
    REQUIRE_MESSAGE(said.contains("url"), *line);
    url_ = said.at("url");
  }
  void kill() {
    REQUIRE(process_->kill().ok());
    REQUIRE(process_->wait(60s));
  }
  [[nodiscard]] std::unique_ptr<Client> client() const {
    ClientOptions options;
    options.url = url_;
    Result<std::unique_ptr<Client>> made = Client::create(options);
    REQUIRE(made);
    return std::move(*made);
  }

 private:
  const slime::test::Folder folder_;
  std::optional<Process> process_;
  std::string url_;
};

// One agent after the other comes and goes, and what nanoctrl said to each is written down.
class Writer {
 public:
  Writer(int number, std::uint64_t seed) : number_(number), rng_(seed) {}

  // Until nanoctrl is gone.
  void run(Client& client, std::atomic<int>& acknowledged) {
    while (step(client)) acknowledged.fetch_add(1);
  }
  // Everything that was acknowledged is as it was said.
  void check(Client& client) {
    const Result<PeerList> list = client.list_peers();
    REQUIRE(list);
    std::map<std::string, std::uint64_t> there;
    for (const PeerInfo& peer : list->peers) there[peer.name] = peer.incarnation;
    CHECK(list->revision > revision_);
    for (const auto& [name, incarnation] : held_) {
      if (unknown_.contains(name)) continue;
      const auto it = there.find(name);
      REQUIRE_MESSAGE(it != there.end(), name << " is lost");
      CHECK(it->second == incarnation);
    }
    for (int i = 0; i < kNames; ++i) {
      const std::string name = name_of(i);
      if (!held_.contains(name) && !unknown_.contains(name))
        CHECK_MESSAGE(!there.contains(name), name << " is back");
    }
    // What nobody knows is looked up, as an agent that starts again would.
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
      status = client.deregister("default", name, it->second);
      if (status.ok()) held_.erase(it);
    } else {
      const Result<Lease> lease =
          client.register_peer(test::registration(name, static_cast<std::uint8_t>(number_ + 1)));
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
  std::set<std::string> unknown_;  // asked for when nanoctrl died
  std::uint64_t incarnation_ = 0;
  std::uint64_t revision_ = 0;
};

TEST_CASE("nanoctrl that is killed while it writes loses nothing that it acknowledged") {
  std::uint64_t seed = 0;
  random_bytes(std::as_writable_bytes(std::span(&seed, 1)));
  seed = static_cast<std::uint64_t>(
      slime::test::setting("SLIME_TEST_SEED", static_cast<std::int64_t>(seed >> 1)));
  MESSAGE("seed ", seed);
  Rng rng(seed);
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
    std::atomic<int> acknowledged{0};
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < kWriters; ++i) clients.push_back(server.client());
    for (int i = 0; i < kWriters; ++i) {
      threads.emplace_back([&, i] {
        writers[static_cast<std::size_t>(i)].run(*clients[static_cast<std::size_t>(i)], acknowledged);
      });
    }
    const int enough = 1 + static_cast<int>(rng.below(60));
    const bool reached = eventually([&] { return acknowledged.load() >= enough; });
    server.kill();
    for (std::thread& thread : threads) thread.join();
    REQUIRE(reached);
    total += acknowledged.load();
  }
  MESSAGE(rounds, " kills, ", total, " changes acknowledged");
}

}  // namespace
}  // namespace slime::ctrl
