// Bulk transfer between two processes, by address, without a registry.
//
//   one_sided serve            offers 64 MiB, prints its address; ends with Enter or end of input
//   one_sided fetch HOST:PORT  reads the 64 MiB, writes them back changed, reads them again and
//                              checks every byte
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "agent/peer_agent.h"

namespace {

constexpr std::size_t kBytes = 64 << 20;

std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 7 + i / 4096); }

int fail(const slime::Status& status) {
  std::fprintf(stderr, "one_sided: %s\n", status.to_string().c_str());
  return 1;
}

int serve(slime::PeerAgent& agent) {
  auto region = agent.allocate(kBytes, slime::Rights::kReadWrite);
  if (!region) return fail(region.error());
  for (std::size_t i = 0; i < kBytes; ++i) region->data()[i] = pattern(i);
  if (const slime::Status status = agent.publish("data", *region); !status.ok()) return fail(status);
  std::printf("%s\n", agent.address().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && !line.empty();) {
  }
  return 0;
}

int fetch(slime::PeerAgent& agent, const std::string& address) {
  slime::Peer peer = agent.peer(address);
  auto remote = peer.region("data");
  if (!remote) return fail(remote.error());
  std::vector<std::byte> memory(remote->length_bytes());
  auto local = agent.register_memory(memory.data(), memory.size(), slime::Rights::kLocal);
  if (!local) return fail(local.error());
  const slime::Copy whole[] = {{*local, 0, *remote, 0, memory.size()}};

  const auto begin = std::chrono::steady_clock::now();
  if (auto read = peer.read(whole).wait(); !read) return fail(read.error());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (memory[i] != pattern(i)) return fail({slime::Code::kCorrupt, "wrong byte at " + std::to_string(i)});
  }
  std::printf("read %zu MiB at %.2f GB/s, every byte right\n", memory.size() >> 20,
              static_cast<double>(memory.size()) / seconds.count() / 1e9);

  // Reverses the bytes, and writes them back in many blocks: one batch of blocks is one operation.
  std::reverse(memory.begin(), memory.end());
  std::vector<slime::Copy> blocks;
  constexpr std::size_t kBlock = 1 << 20;
  for (std::size_t at = 0; at < memory.size(); at += kBlock) {
    blocks.push_back({*local, at, *remote, at, std::min(kBlock, memory.size() - at)});
  }
  if (auto written = peer.write(blocks).wait(); !written) return fail(written.error());
  std::vector<std::byte> expected = memory;
  std::fill(memory.begin(), memory.end(), std::byte{0});
  if (auto read = peer.read(whole).wait(); !read) return fail(read.error());
  if (memory != expected) return fail({slime::Code::kCorrupt, "what was written did not come back"});
  std::printf("wrote %zu blocks and read them back, every byte right\n", blocks.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if ((role != "serve" || argc != 2) && (role != "fetch" || argc != 3)) {
    std::fprintf(stderr, "usage: one_sided serve | one_sided fetch HOST:PORT\n");
    return 2;
  }
  const char* provider = std::getenv("SLIME_PROVIDER");  // such as "verbs"
  auto agent = slime::PeerAgent::start(
      {.name = "one-sided-" + role, .provider = provider != nullptr ? provider : "auto"});
  if (!agent) return fail(agent.error());
  return role == "serve" ? serve(**agent) : fetch(**agent, argv[2]);
}
