#include <cstdio>

#include "agent/peer_agent.h"

// Two agents of one process call each other: everything that they need was found and linked.
int main() {
  auto server = slime::PeerAgent::start({.name = "server"});
  auto client = slime::PeerAgent::start({.name = "client"});
  if (!server || !client) return 1;
  slime::rpc::Service calc("Calc");
  if (!calc.add("add", [](long a, long b) { return a + b; }).ok() || !(*server)->serve(calc).ok()) return 1;
  const auto sum = (*client)->peer((*server)->address()).call<long>("Calc", "add", 40, 2).wait();
  if (!sum) {
    std::fprintf(stderr, "%s\n", sum.error().to_string().c_str());
    return 1;
  }
  return *sum == 42 ? 0 : 1;
}
