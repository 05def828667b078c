// Agents in a process without free descriptors: each step that needs one fails in time with the
// reason, and works once there are some. A program of its own, since the limit is the process's.
#include <dirent.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/agent/agents.h"
#include "tests/support/descriptors.h"

namespace slime::test {
namespace {

constexpr std::uint64_t kBytes = 1 << 20;  // more than a message holds
const Nanos kTry = milliseconds(300);      // the deadline while descriptors are missing
constexpr int kMostSpare = 64;             // more than two agents and their connection need

// The step that failed and its error; "" and OK if none failed.
struct Outcome {
  std::string step;
  Status status;
};

bool is_answer_to_want(Code code) {
  return code == Code::kResourceExhausted || code == Code::kUnavailable || code == Code::kDeadlineExceeded;
}

// Starts an agent, allocates memory, connects, reads the peer's region, and sends a large body
// there and back.
Outcome try_all(const std::string& address, Nanos timeout) {
  PeerAgentOptions options;
  options.provider = provider();
  auto agent = PeerAgent::start(std::move(options));
  if (!agent) return {"start", agent.status()};
  auto local = (*agent)->allocate(kBytes, Rights::kReadWrite);
  if (!local) return {"allocate", local.status()};
  Peer peer = (*agent)->peer(address).with_timeout(timeout);
  if (auto connected = peer.connect().wait(); !connected) return {"connect", connected.status()};
  const auto remote = peer.region("memory", timeout);
  if (!remote) return {"region", remote.status()};
  const Copy copy[] = {{*local, 0, *remote, 0, kBytes}};
  if (auto read = peer.read(copy).wait(); !read) return {"read", read.status()};
  if (local->bytes()[kBytes - 1] != std::byte{7}) return {"compare", Status(Code::kCorrupt, "other bytes")};
  const auto same = peer.call_bytes("bytes", "same", ByteVector(kBytes, std::byte{3}), timeout).wait();
  if (!same) return {"call", same.status()};
  if (same->bytes().size() != kBytes) return {"compare", Status(Code::kCorrupt, "another size")};
  return {};
}

int open_descriptors() {
  int out = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  REQUIRE(folder != nullptr);
  while (::readdir(folder) != nullptr) ++out;
  ::closedir(folder);
  return out;
}

}  // namespace

TEST_CASE("whatever descriptor is missing, agents say so in time, leak none, and go on once there are some") {
  const auto server = start("server");
  auto memory = take(server->allocate(kBytes, Rights::kReadWrite));
  std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{7});
  REQUIRE(server->publish("memory", memory).ok());
  rpc::Service service("bytes");
  REQUIRE(service.add_bytes("same", [](Bytes body) { return ByteVector(body.begin(), body.end()); }).ok());
  REQUIRE(server->serve(service).ok());
  for (int warm = 0; warm < 2; ++warm) {
    const Outcome first = try_all(server->address(), kSoon);
    REQUIRE_MESSAGE(first.status.ok(), first.step, ": ", first.status.to_string());
  }
  const auto connections = [&] { return number_in(to_json(server->info()), "connections"); };
  REQUIRE(eventually([&] { return connections() == 0; }));
  const int before = open_descriptors();
  const int rounds = std::max(1, scaled(1));
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> failed;
    int spare = 0;
    for (; spare < kMostSpare; ++spare) {
      CAPTURE(spare);
      Outcome outcome;
      {
        const FewDescriptors few(spare);
        const TimePoint began = steady_clock().now();
        outcome = try_all(server->address(), patient(kTry));
        CHECK(steady_clock().now() - began < patient(seconds(10)));
      }
      if (outcome.status.ok()) break;
      CHECK_MESSAGE(is_answer_to_want(outcome.status.code()), outcome.step, ": ", outcome.status.to_string());
      if (failed.empty() || failed.back() != outcome.step) failed.push_back(outcome.step);
      const Outcome after = try_all(server->address(), kSoon);
      REQUIRE_MESSAGE(after.status.ok(), "without ", outcome.step, ", and later ", after.step, ": ",
                      after.status.to_string());
    }
    std::string steps;
    for (const std::string& step : failed) steps += " " + step;
    MESSAGE("all went well with ", spare, " descriptors; what failed with fewer:", steps);
    CHECK(spare < kMostSpare);
    CHECK(std::find(failed.begin(), failed.end(), "start") != failed.end());
    CHECK(failed.size() >= 2);
    CHECK(eventually([&] { return connections() == 0 && open_descriptors() <= before; }));
  }
}

}  // namespace slime::test
