#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "agent/peer_agent.h"

// Runs two agents in one process, without a registry: calls with numbers and containers of structs,
// and a read of remote memory. Shows that the installed package is complete.
namespace {

struct Point {
  long x = 0;
  long y = 0;
  MSGPACK_DEFINE_MAP(x, y)
};
using Points = std::map<std::string, std::vector<Point>>;

int fail(const char* what, const slime::Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.to_string().c_str());
  return 1;
}

int call(slime::Peer& server) {
  const auto sum = server.call<long>("Calc", "add", 40, 2).wait();
  if (!sum) return fail("call", sum.error());
  const Points points = {{"a", {{1, 2}, {3, 4}}}, {"b", {{5, 6}}}};
  const auto total = server.call<long>("Calc", "total", points).wait();
  if (!total) return fail("call with containers", total.error());
  return *sum == 42 && *total == 21 ? 0 : 1;
}

long total(const Points& points) {
  long out = 0;
  for (const auto& [name, list] : points)
    for (const Point& point : list) out += point.x + point.y;
  return out;
}

int read(slime::PeerAgent& client, slime::Peer& server, const slime::MemoryRegion& wanted) {
  const auto remote = server.region("data");
  if (!remote) return fail("region", remote.error());
  std::vector<std::byte> memory(remote->length_bytes());
  const auto local = client.register_memory(memory.data(), memory.size(), slime::Rights::kLocal);
  if (!local) return fail("register_memory", local.error());
  const slime::Copy whole[] = {{*local, 0, *remote, 0, memory.size()}};
  if (const auto got = server.read(whole).wait(); !got) return fail("read", got.error());
  return std::memcmp(memory.data(), wanted.data(), memory.size()) == 0 ? 0 : 1;
}

}  // namespace

int main() {
  auto server = slime::PeerAgent::start({.name = "server"});
  if (!server) return fail("server", server.error());
  auto client = slime::PeerAgent::start({.name = "client"});
  if (!client) return fail("client", client.error());
  slime::rpc::Service calc("Calc");
  if (!calc.add("add", [](long a, long b) { return a + b; }).ok() || !calc.add("total", total).ok()) return 1;
  if (!(*server)->serve(calc).ok()) return 1;
  const auto region = (*server)->allocate(1 << 20, slime::Rights::kReadWrite);
  if (!region) return fail("allocate", region.error());
  for (std::size_t i = 0; i < 1 << 20; ++i) region->data()[i] = static_cast<std::byte>(i * 7 + i / 4096);
  if (const auto status = (*server)->publish("data", *region); !status.ok()) return fail("publish", status);

  slime::Peer peer = (*client)->peer((*server)->address());
  const int failed = call(peer) + read(**client, peer, *region);
  std::puts(failed == 0 ? "a call and a read: right" : "a call and a read: wrong");
  return failed;
}
