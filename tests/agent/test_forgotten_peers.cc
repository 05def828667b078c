// Tests an agent that has met more peers than it remembers.
#include <array>
#include <atomic>
#include <string>

#include "agent/limits.h"
#include "base/str.h"
#include "tests/agent/agents.h"

using namespace slime;
using namespace slime::test;

namespace {

std::string port_of(PeerAgent& agent) {
  const std::string address = agent.address();
  return address.substr(address.rfind(':') + 1);
}

// Returns the number of peers that info() shows.
std::size_t peers_of(PeerAgent& agent) {
  const std::string info = to_json(agent.info());
  std::size_t out = 0;
  for (auto at = info.find("\"failures\":"); at != std::string::npos; at = info.find("\"failures\":", at + 1))
    ++out;
  return out;
}

}  // namespace

TEST_CASE("peers that callbacks give up while a connection becomes ready are not used any more") {
  const auto server = start("server");
  const auto client = start("client");
  // Three names of one peer: while the first connects, the others are still being resolved.
  const std::string port = port_of(*server);
  const std::array<std::string, 3> names{"127.0.0.1:" + port, "localhost:" + port, "tcp://localhost:" + port};
  for (const std::string& name : names) REQUIRE(client->peer(name).connect().wait(kSoon).has_value());
  const int rounds = scaled(5);
  std::atomic<int> nobody{0};
  for (int round = 0; round < rounds; ++round) {
    // Fills the table of peers, after the peers of the round before are forgotten.
    for (auto known = peers_of(*client); known != agent::limits::kRememberedPeers;
         known = peers_of(*client)) {
      for (; known < agent::limits::kRememberedPeers; ++known)
        CHECK(code_of(client->peer(str("nobody", nobody++)).connect().wait(kSoon)) == Code::kNotFound);
    }
    for (const std::string& name : names) client->peer(name).disconnect().ignore();
    REQUIRE(eventually([&] { return number_in(to_json(client->info()), "connections") == 0; }));
    std::array<std::atomic<int>, 3> codes{-1, -1, -1};
    for (std::size_t i = 0; i < names.size(); ++i) {
      client->peer(names[i]).connect().then([&, i](const Result<None>& result) {
        if (result && i > 0) {
          // The links that still resolve take over the first one's connection, one after the other.
          client->peer(names[3 - i]).disconnect().ignore();
          // One more peer than the agent remembers.
          static_cast<void>(client->peer(str("nobody", nobody++)).connect());
        }
        codes[i] = static_cast<int>(code_of(result));
      });
    }
    for (const std::atomic<int>& code : codes) {
      REQUIRE(eventually([&] { return code >= 0; }));
      const auto known = static_cast<Code>(code.load());
      CHECK((known == Code::kOk || known == Code::kCancelled || known == Code::kUnavailable));
    }
  }
  CHECK(client->peer(names[0]).connect().wait(kSoon).has_value());
}
