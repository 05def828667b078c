// One host's view of another host, healthy or dying. Scripts in two_hosts/ run these tests by name.
//
//   SLIME_HOSTS_CTRL    the registry's URL
//   SLIME_HOSTS_PEER    the name of an e2e_peer on the other host
//   SLIME_HOSTS_CACHE   the name of a slime-cache
//   SLIME_HOSTS_LISTEN  the listen address of agents on this host
//   SLIME_HOSTS_PATH    comma-separated words that an error's text must contain: device and both
// GIDs
//   SLIME_HOSTS_FAULT   a shell command that breaks something, and repairs it if needed
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <future>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "base/random.h"
#include "base/str.h"
#include "cache/client.h"
#include "tests/e2e/pattern.h"
#include "tests/support/eventually.h"
#include "tests/support/settings.h"

namespace slime::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kCalls = 64;
// Longer than any timeout under test: each operation must end earlier, because the other host's
// death is detected.
constexpr Nanos kNoHelp = seconds(60);

std::string text_setting(const char* name) {
  const char* const text = std::getenv(name);
  REQUIRE_MESSAGE(text != nullptr, name);
  return text;
}

std::unique_ptr<PeerAgent> start_agent(const std::string& name, const std::string& token,
                                       std::string on = provider()) {
  PeerAgentOptions options;
  options.name = name;
  options.provider = std::move(on);
  options.ctrl_url = text_setting("SLIME_HOSTS_CTRL");
  options.listen = text_setting("SLIME_HOSTS_LISTEN");
  options.token = token;
  auto agent = PeerAgent::start(options);
  // nanoctrl on an emulated host may take longer to accept than an agent's start waits.
  (void)eventually([&] {
    if (agent || agent.error().code() != Code::kUnavailable) return true;
    agent = PeerAgent::start(options);
    return agent.has_value();
  });
  REQUIRE_MESSAGE(agent.has_value(), agent.status().to_string());
  return std::move(*agent);
}

// Looks up the peer's region, which connects both sides. The first handshake may time out, since
// the emulated hosts share two cores; any other error is a failure at once.
RemoteRegion meet(Peer& peer) {
  auto region = peer.region("big", kNoHelp);
  (void)eventually([&] {
    const Code code = region.status().code();
    if (code != Code::kUnavailable && code != Code::kDeadlineExceeded) return true;
    region = peer.region("big", kNoHelp);
    return region.has_value();
  });
  REQUIRE_MESSAGE(region.has_value(), region.status().to_string());
  return *region;
}

// An agent, its peer on the other host, and a region as large as the peer's.
struct Side {
  std::unique_ptr<PeerAgent> agent;
  Peer peer;
  MemoryRegion local;

  Side() : agent(start_agent("tester-of-" + text_setting("SLIME_HOSTS_PEER"), text_setting("SLIME_TOKEN"))) {
    peer = agent->peer(text_setting("SLIME_HOSTS_PEER")).with_timeout(kNoHelp);
    auto region = agent->allocate(meet(peer).length_bytes(), Rights::kLocal);
    REQUIRE_MESSAGE(region.has_value(), region.status().to_string());
    local = std::move(*region);
  }
  RemoteRegion remote() {
    auto region = peer.region("big");
    REQUIRE_MESSAGE(region.has_value(), region.status().to_string());
    return *region;
  }
};

std::int64_t millis(Nanos span) { return std::chrono::duration_cast<milliseconds>(span).count(); }

// Writes one pattern and reads another back; both sides compare every byte.
Status exchange(Side& side, std::uint64_t seed) {
  const auto remote = side.peer.region("big");
  if (!remote) return remote.error();
  const Copy whole[] = {{side.local, 0, *remote, 0, side.local.length_bytes()}};
  fill_pattern(side.local.bytes(), seed);
  const auto wrote = side.peer.write(whole).wait();
  if (!wrote) return wrote.error();
  const auto matches = side.peer.call<bool>("work", "matches", seed).wait();
  if (!matches) return matches.error();
  CHECK_MESSAGE(*matches, "wrong bytes there after write ", seed);

  const auto filled = side.peer.call<void>("work", "fill", seed + 1).wait();
  if (!filled) return filled.error();
  const auto read = side.peer.read(whole).wait();
  if (!read) return read.error();
  CHECK_MESSAGE(has_pattern(side.local.bytes(), seed + 1), "wrong bytes here after read ", seed);
  return {};
}

// Makes calls of many sizes, kCalls at a time; each reply equals its request.
Status ask(Peer& peer, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> questions;
    std::vector<Future<std::string>> answers;
    for (std::size_t i = 0; i < kCalls; ++i) {
      questions.push_back(str(round, "-", i, std::string(i * i * 5, static_cast<char>('a' + i % 26))));
      answers.push_back(peer.call<std::string>("work", "echo", questions.back()));
    }
    for (std::size_t i = 0; i < kCalls; ++i) {
      const auto answer = answers[i].wait();
      if (!answer) return answer.error();
      CHECK_MESSAGE(*answer == questions[i], "a wrong answer to call ", i, " of round ", round);
    }
  }
  return {};
}

// Starts calls that the peer receives and never answers.
std::vector<Future<Payload>> hold_calls(Peer& peer) {
  std::vector<Future<Payload>> calls;
  for (std::size_t i = 0; i < kCalls; ++i)
    calls.push_back(peer.raw().call("work", "hold", rpc::encode_arguments(), kNoHelp));
  REQUIRE(eventually([&] {
    const auto held = peer.call<std::size_t>("work", "held").wait();
    return held && *held >= kCalls;
  }));
  return calls;
}

void start_fault() { REQUIRE(std::system(text_setting("SLIME_HOSTS_FAULT").c_str()) == 0); }

// Checks for kUnavailable, with a text that names the peer, the path and the cause.
void check_death(const Status& status) {
  CHECK_MESSAGE(status.code() == Code::kUnavailable, status.to_string());
  std::string words = text_setting("SLIME_HOSTS_PEER") + "," + text_setting("SLIME_HOSTS_PATH") + ",";
  for (std::size_t at = 0, end = 0; (end = words.find(',', at)) != std::string::npos; at = end + 1) {
    const std::string word = words.substr(at, end - at);
    CHECK_MESSAGE(status.text().find(word) != std::string::npos, word, " is not in: ", status.text());
  }
}

// Waits for the operations that the other host's death ends. Returns the time when the last ended.
TimePoint wait_for_deaths(std::vector<Future<Payload>>& calls) {
  for (auto& call : calls) {
    const auto reply = call.wait(kNoHelp);
    REQUIRE_FALSE(reply.has_value());
    check_death(reply.error());
    CHECK(reply.error().maybe_executed());
  }
  return steady_clock().now();
}

Nanos bound() { return milliseconds(setting("SLIME_HOSTS_BOUND_MS", 10'000)); }

// Checks that the next use after a death has a bounded time.
void check_next_use(Peer& peer) {
  const TimePoint asked = steady_clock().now();
  const auto echo = peer.call<std::string>("work", "echo", std::string("anybody there?")).wait();
  REQUIRE_FALSE(echo.has_value());
  CHECK_MESSAGE(echo.error().code() == Code::kUnavailable, echo.error().to_string());
  const Nanos took = steady_clock().now() - asked;
  CHECK(took < bound());
  MESSAGE(str("the next call ended after ", millis(took), " ms: ", echo.error().to_string()));
}

}  // namespace

TEST_CASE("two hosts find each other by name and exchange calls and bytes") {
  {
    const auto stranger = start_agent("stranger-of-" + text_setting("SLIME_HOSTS_PEER"), "not the token");
    const auto refused = stranger->peer(text_setting("SLIME_HOSTS_PEER")).connect().wait();
    REQUIRE_FALSE(refused.has_value());
    CHECK_MESSAGE(refused.error().code() == Code::kUnauthenticated, refused.error().to_string());
  }
  Side side;
  const auto peers = side.agent->list_peers();
  REQUIRE_MESSAGE(peers.has_value(), peers.status().to_string());
  const std::string listed = to_json(*peers);
  CHECK(listed.find('"' + side.peer.name() + '"') != std::string::npos);
  CHECK(listed.find('"' + side.agent->name() + '"') != std::string::npos);
  const Status asked = ask(side.peer, scaled(50));
  CHECK_MESSAGE(asked.ok(), asked.to_string());
  const TimePoint begin = steady_clock().now();
  const Status exchanged = exchange(side, 10);
  CHECK_MESSAGE(exchanged.ok(), exchanged.to_string());
  MESSAGE(str(scaled(50) * static_cast<int>(kCalls), " calls; ", side.local.length_bytes() >> 20,
              " MiB there and back in ", millis(steady_clock().now() - begin), " ms; ",
              to_json(side.peer.info())));
}

TEST_CASE("objects in a cache on the other host come back as they were put") {
  constexpr std::size_t kObjects = 16;
  constexpr std::size_t kObjectBytes = 256 * 1024;
  const auto agent =
      start_agent("cache-user-of-" + text_setting("SLIME_HOSTS_PEER"), text_setting("SLIME_TOKEN"));
  auto region = agent->allocate(kObjects * kObjectBytes, Rights::kLocal);
  REQUIRE_MESSAGE(region.has_value(), region.status().to_string());
  Rng(1).fill(region->bytes());
  const ByteVector expected(region->bytes().begin(), region->bytes().end());
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < kObjects; ++i) keys.push_back(str("object-", i));
  std::vector<cache::PutItem> puts;
  std::vector<cache::GetItem> gets;
  for (std::size_t i = 0; i < kObjects; ++i) {
    puts.push_back({keys[i], cache::Source(*region, i * kObjectBytes, kObjectBytes)});
    gets.push_back({keys[i], cache::Target(*region, i * kObjectBytes, kObjectBytes)});
  }

  auto created = cache::CacheClient::create(*agent, text_setting("SLIME_HOSTS_CACHE"));
  REQUIRE_MESSAGE(created.has_value(), created.status().to_string());
  cache::CacheClient client = std::move(*created);
  for (const Status& put : client.put_many("hosts", puts)) CHECK_MESSAGE(put.ok(), put.to_string());
  std::fill(region->bytes().begin(), region->bytes().end(), std::byte{0});
  for (const auto& got : client.get_many("hosts", gets)) {
    REQUIRE_MESSAGE(got.has_value(), got.status().to_string());
    CHECK(*got == kObjectBytes);
  }
  CHECK(std::equal(expected.begin(), expected.end(), region->bytes().begin()));
}

TEST_CASE("a host that dies during writes and calls ends all of them") {
  Side side;
  std::vector<Future<Payload>> calls = hold_calls(side.peer);
  const RemoteRegion remote = side.remote();
  const Copy whole[] = {{side.local, 0, remote, 0, side.local.length_bytes()}};
  std::deque<Future<None>> writes;
  const auto keep_writing = [&] {
    while (writes.size() < 4) writes.push_back(side.peer.write(whole, kNoHelp));
  };
  keep_writing();
  const auto began = writes.front().wait();
  REQUIRE_MESSAGE(began.has_value(), began.status().to_string());
  writes.pop_front();
  keep_writing();

  start_fault();
  const TimePoint broken = steady_clock().now();
  std::uint64_t written = 0;
  Status ended;
  while (ended.ok()) {
    REQUIRE(steady_clock().now() - broken < kNoHelp);
    const auto write = writes.front().wait(kNoHelp);
    writes.pop_front();
    ended = write.status();
    if (!ended.ok()) break;
    ++written;
    keep_writing();
  }
  const TimePoint first = steady_clock().now();
  check_death(ended);
  for (auto& write : writes) {
    const auto outcome = write.wait(kNoHelp);
    REQUIRE_FALSE(outcome.has_value());
    check_death(outcome.error());
  }
  const TimePoint last = wait_for_deaths(calls);
  CHECK(last - broken < bound());
  MESSAGE(str("ends ", millis(first - broken), " to ", millis(last - broken),
              " ms after the plug was pulled; ", written, " writes were complete; ", ended.to_string()));
  check_next_use(side.peer);
}

// Returns the first bytes of the peer's region; checks the provider of its connection.
std::vector<std::byte> first_bytes(PeerAgent& agent, Peer peer, const std::string& expected) {
  constexpr std::size_t kBytes = 4096;
  const RemoteRegion remote = meet(peer);
  auto local = agent.allocate(kBytes, Rights::kLocal);
  REQUIRE_MESSAGE(local.has_value(), local.status().to_string());
  const Copy copy{*local, 0, remote, 0, kBytes};
  const auto read = peer.read({&copy, 1}, kNoHelp).wait(kNoHelp);
  CHECK_MESSAGE(read.has_value(), read.status().to_string());
  CHECK_MESSAGE(to_json(peer.info()).find(expected) != std::string::npos, to_json(peer.info()));
  return {local->data(), local->data() + kBytes};
}

// Starts an agent of "auto" and connects it to the peer. After an RDMA handshake that timed out, an
// agent avoids RDMA for a minute, so a further try uses a new agent.
std::unique_ptr<PeerAgent> start_choosing(const std::string& far) {
  std::unique_ptr<PeerAgent> agent;
  const bool in_time = eventually([&] {
    agent.reset();
    agent = start_agent("chooser-of-" + far, text_setting("SLIME_TOKEN"), "auto");
    Peer peer = agent->peer(far);
    (void)meet(peer);
    return to_json(peer.info()).find("it failed with this peer") == std::string::npos;
  });
  REQUIRE_MESSAGE(in_time, to_json(agent->peer(far).info()));
  return agent;
}

TEST_CASE(
    "agents that choose take shared memory on one host and RDMA between two, beside one that is pinned") {
  const std::string far = text_setting("SLIME_HOSTS_PEER");
  const std::string near = text_setting("SLIME_HOSTS_OWN");
  const std::string token = text_setting("SLIME_TOKEN");
  auto choosing = start_choosing(far);
  auto pinned = start_agent("pinned-of-" + far, token, "tcp");
  const auto over_verbs =
      first_bytes(*choosing, choosing->peer(far),
                  R"("provider":"verbs","reason":"other host; both have an active RDMA port")");
  const auto over_tcp = first_bytes(*pinned, pinned->peer(far), R"("provider":"tcp","reason":"the only one)");
  CHECK(over_verbs == over_tcp);
  first_bytes(*choosing, choosing->peer(near), R"("provider":"shm","reason":"same host and user")");
}

// With RDMA addresses that cannot reach each other.
TEST_CASE("agents that choose use tcp where the RDMA devices of two hosts carry nothing to each other") {
  const std::string far = text_setting("SLIME_HOSTS_PEER");
  auto choosing = start_agent("chooser-of-" + far, text_setting("SLIME_TOKEN"), "auto");
  Peer peer = choosing->peer(far);
  first_bytes(*choosing, peer, R"("provider":"tcp","reason":"other host; )");
  CHECK_MESSAGE(to_json(peer.info()).find("no verbs here: it failed with this peer: ") != std::string::npos,
                to_json(peer.info()));
  // RDMA is not tried again at once.
  const TimePoint begin = steady_clock().now();
  REQUIRE(peer.disconnect().ok());
  first_bytes(*choosing, peer, R"("provider":"tcp")");
  CHECK(to_json(peer.info()).find("no verbs here: it failed with this peer: ") != std::string::npos);
  MESSAGE(str("the second connection took ", millis(steady_clock().now() - begin), " ms"));
}

TEST_CASE("a host that dies while it holds calls ends all of them") {
  Side side;
  std::vector<Future<Payload>> calls = hold_calls(side.peer);
  start_fault();
  const TimePoint broken = steady_clock().now();
  const auto first = calls.front().wait(kNoHelp);
  REQUIRE_FALSE(first.has_value());
  check_death(first.error());
  calls.erase(calls.begin());
  const TimePoint last = wait_for_deaths(calls);
  CHECK(last - broken < bound());
  MESSAGE(str("the last end ", millis(last - broken), " ms after the plug was pulled; ",
              first.error().to_string()));
  check_next_use(side.peer);
}

TEST_CASE("a link that is down for a while costs no byte, and at most the connection") {
  Side side;
  REQUIRE(exchange(side, 1).ok());
  std::future<void> fault = std::async(std::launch::async, start_fault);
  std::uint64_t good = 0;
  std::uint64_t after = 0;
  std::uint64_t failed = 0;
  std::string first_error;
  Nanos longest{};
  TimePoint mended = kNever;
  // Repeat until three rounds that began after the repair have succeeded.
  for (std::uint64_t seed = 2; after < 3; seed += 2) {
    if (mended == kNever && fault.wait_for(seconds(0)) == std::future_status::ready)
      mended = steady_clock().now();
    const TimePoint begin = steady_clock().now();
    const Status status = exchange(side, seed);
    longest = std::max(longest, steady_clock().now() - begin);
    if (status.ok()) {
      ++good;
      if (begin >= mended) ++after;
    } else {
      CHECK_MESSAGE(status.code() == Code::kUnavailable, status.to_string());
      if (failed++ == 0) first_error = status.to_string();
    }
    REQUIRE(longest < kNoHelp);
    REQUIRE((mended == kNever || begin - mended < patient(seconds(30))));
  }
  MESSAGE(str(good, " rounds were good, the longest took ", millis(longest), " ms; ",
              millis(steady_clock().now() - mended), " ms from the mended link to three good rounds; ",
              failed, " were not", failed == 0 ? "" : ", the first: " + first_error));
}

TEST_CASE("a lossy wire costs no byte and hangs nothing") {
  Side side;
  start_fault();
  const TimePoint begin = steady_clock().now();
  const int rounds = scaled(20);
  for (int round = 0; round < rounds; ++round) {
    const Status exchanged = exchange(side, static_cast<std::uint64_t>(2 * round + 1));
    REQUIRE_MESSAGE(exchanged.ok(), exchanged.to_string());
    const Status asked = ask(side.peer, 2);
    REQUIRE_MESSAGE(asked.ok(), asked.to_string());
  }
  MESSAGE(str(rounds, " rounds of ", side.local.length_bytes() >> 20, " MiB there and back and ", 2 * kCalls,
              " calls in ", millis(steady_clock().now() - begin), " ms; ", to_json(side.peer.info())));
}

}  // namespace slime::test
