// kv_test_peer: prints its address, and serves a KV cache of the geometry of test_faults.cc until
// its stdin ends.
#include <cstdio>
#include <iostream>
#include <string>

#include "kv/cache.h"
#include "tests/support/settings.h"

int main() {
  auto agent = slime::PeerAgent::start({.provider = slime::test::provider()});
  if (!agent) return 1;
  // 64 MiB in all, so that a transfer can be caught under way.
  const auto cache = slime::kv::Cache::allocate(
      **agent, {.layers = 2, .blocks = 8, .block_tokens = 256, .heads = 2, .head_bytes = 4096});
  if (!cache) {
    std::fprintf(stderr, "kv_test_peer: %s\n", cache.status().to_string().c_str());
    return 1;
  }
  std::cout << (*agent)->address() << std::endl;
  std::string line;
  std::getline(std::cin, line);
  return 0;
}
