// A peer in a process of its own, for tests that kill, stop and replace it.
//
//   e2e_peer NAME CTRL_URL REGION_BYTES [LISTEN]
//
// Writes a dump of its agent on SIGUSR1. Publishes the region "big", filled with the pattern of
// pattern.h, serves "work", prints READY and its address, and ends with its stdin. $SLIME_TOKEN is
// the token of an agent that listens off loopback.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <vector>

#include "agent/dump.h"
#include "agent/peer_agent.h"
#include "tests/e2e/pattern.h"
#include "tests/support/settings.h"

namespace {

int fail(const slime::Status& status) {
  std::printf("ERROR %s\n", status.to_string().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  if (auto status = slime::dump_on_signal(); !status.ok()) return fail(status);
  slime::PeerAgentOptions options;
  options.name = argv[1];
  options.ctrl_url = argv[2];
  options.kind = "e2e";
  options.provider = slime::test::provider();
  if (argc == 5) options.listen = argv[4];
  if (const char* const token = std::getenv("SLIME_TOKEN")) options.token = token;
  options.heartbeat = std::chrono::milliseconds(500);
  auto agent = slime::PeerAgent::start(options);
  if (!agent) return fail(agent.error());

  auto region = (*agent)->allocate(std::strtoull(argv[3], nullptr, 10), slime::Rights::kReadWrite);
  if (!region) return fail(region.error());
  slime::test::fill_pattern(region->bytes());
  if (auto status = (*agent)->publish("big", *region); !status.ok()) return fail(status);

  // Requests to "hold" are never answered.
  std::mutex mutex;
  std::vector<slime::rpc::Request> held;
  slime::rpc::Service work("work");
  slime::Status status = work.add("echo", [](const std::string& text) { return text; });
  if (status.ok()) {
    status = work.add_raw("hold",
                          [&](slime::rpc::Request request) {
                            const std::lock_guard lock(mutex);
                            held.push_back(std::move(request));
                          },
                          {.run = slime::rpc::Run::kInline});
  }
  if (status.ok()) {
    status = work.add("held", [&] {
      const std::lock_guard lock(mutex);
      return held.size();
    });
  }
  // The region's bytes, by the number of their pattern.
  if (status.ok()) {
    status = work.add("fill", [&](std::uint64_t seed) { slime::test::fill_pattern(region->bytes(), seed); });
  }
  if (status.ok()) {
    status = work.add("matches",
                      [&](std::uint64_t seed) { return slime::test::has_pattern(region->bytes(), seed); });
  }
  if (status.ok()) status = (*agent)->serve(work);
  if (!status.ok()) return fail(status);
  std::printf("READY %s\n", (*agent)->address().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  (*agent)->close().ignore();
  const std::lock_guard lock(mutex);
  held.clear();
  return 0;
}
