#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace slime::bench {

// The flags of `slime bench rpc`, `bulk`, `blocks` and `notify`.
struct Options {
  std::string bench = "rpc";        // rpc, bulk, blocks, notify
  std::string face = "peer";        // peer: agents; channel: a Channel and its endpoint, which callers drive
  std::string provider = "auto";    // PeerAgent::provider_names(); with a channel not "auto"
  std::string mode = "thread";      // thread: waits block; caller: waits spin and drive the loop
  std::string operation = "write";  // bulk, blocks: write, read
  std::uint64_t size = 64;          // bytes of a request and of its reply; of one block
  std::uint32_t count = 1;          // blocks of one operation
  std::string memory = "slime";     // bulk: slime: Slime's; foreign: the program's own, registered
  bool cold = false;                // bulk: random blocks of two pools, each once before any repeats
  std::uint64_t pool_bytes = std::uint64_t{512} << 20;  // cold: of each side
  bool adjacent = false;                                // blocks: without gaps
  std::uint32_t inflight = 1;                           // of each client
  std::uint32_t clients = 1;                            // processes
  double seconds = 3;
  double warmup_seconds = 0.3;
  std::uint32_t rounds = 1;  // of measurement and limit; no flag of children

  [[nodiscard]] bool moves_blocks() const { return bench == "bulk" || bench == "blocks"; }
  [[nodiscard]] bool scattered() const { return bench == "blocks" && !adjacent; }
  [[nodiscard]] Status validate() const;
  // Returns the flags that make the same options in a child.
  [[nodiscard]] std::vector<std::string> to_arguments() const;
};

}  // namespace slime::bench
