// kv_broadcast_peer owner BYTES: prints its address, and offers a broadcast until its stdin ends.
// kv_broadcast_peer reader BYTES ADDRESS: prints "ready", fetches the broadcast of the owner at
// ADDRESS, prints "fetched" if all bytes are right, or the error, and stays a parent until its
// stdin ends.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "kv/broadcast.h"
#include "kv/replica.h"
#include "tests/kv/broadcast_bytes.h"
#include "tests/support/settings.h"

namespace {

void until_stdin_ends() {
  std::string line;
  while (std::getline(std::cin, line)) {
  }
}

int own(slime::PeerAgent& agent, std::uint64_t bytes) {
  slime::kv::test::Parts parts({bytes});
  parts.fill(1);
  const auto broadcast = slime::kv::Broadcast::over(agent, parts.named(), slime::kv::test::fault_options());
  if (!broadcast) return 1;
  std::cout << agent.address() << std::endl;
  until_stdin_ends();
  return 0;
}

int read(slime::PeerAgent& agent, std::uint64_t bytes, const char* owner) {
  slime::kv::test::Parts parts({bytes});
  auto replica = slime::kv::Replica::over(agent, parts.named());
  if (!replica) return 1;
  std::cout << "ready" << std::endl;
  slime::kv::Move move = replica->fetch(agent.peer(owner), slime::test::patient(std::chrono::seconds(30)));
  const slime::Status status = move.wait().status();
  const char* const fetched = parts.wrong_bytes(1) == 0 ? "fetched" : "fetched wrong bytes";
  std::cout << (status.ok() ? fetched : status.to_string()) << std::endl;
  until_stdin_ends();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto agent = slime::PeerAgent::start({.provider = slime::test::provider()});
  if (!agent || argc < 3) return 1;
  const std::uint64_t bytes = std::strtoull(argv[2], nullptr, 10);
  const std::string role = argv[1];
  if (role == "owner") return own(**agent, bytes);
  return argc == 4 ? read(**agent, bytes, argv[3]) : 1;
}
