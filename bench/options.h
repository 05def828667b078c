#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace slime::bench {

// The flags of a measurement between a server and its clients.
struct Options {
  std::string bench = "rpc";  // rpc, bulk, blocks, notify, connect, cache, p2p
  // peer: agents; prepared, numbers: their prepared batches, their blocks by number; naive: each
  // block an operation that is waited for; channel: a Channel and its endpoint, which callers drive
  std::string face = "peer";
  std::string provider = "auto";    // PeerAgent::provider_names(); with a channel not "auto"
  std::string mode = "thread";      // thread: waits block; caller: waits spin and drive the loop
  std::string operation = "write";  // blocks: write, read; p2p: also send; cache: get, put
  std::uint64_t size = 64;          // bytes of a request and of its reply, a block, or an object
  std::uint32_t count = 1;          // blocks or objects of one operation; connect: agents of a round
  std::string memory = "slime";     // bulk: slime: Slime's; foreign: the program's own, registered
  bool cold = false;                // bulk: random blocks of two pools, each once before any repeats
  std::uint64_t pool_bytes = std::uint64_t{512} << 20;  // cold: of each side; cache: of all objects
  bool adjacent = false;                                // blocks: without gaps
  std::uint32_t inflight = 1;                           // of each client
  std::uint32_t threads = 1;       // rpc: of each client, which share its agent and --inflight
  std::uint64_t beside_bytes = 0;  // rpc: of writes, one after the other, beside the calls; 0: none
  std::uint32_t clients = 1;       // processes
  bool dual = false;  // p2p: bytes go both ways at once; doubles inflight, and each second one goes back
  std::uint64_t iterations = 0;  // operations of each client and round; 0: as many as fit into seconds
  bool limits = true;            // of the driver alone: measures the limit, too
  double seconds = 3;
  double warmup_seconds = 0.3;
  std::uint32_t rounds = 1;  // of measurement and limit; of the driver alone
  // "host:port" of a `slime bench serve`, whose host runs the server; empty: this one does. Of the
  // driver alone
  std::string to{};
  std::string host = "127.0.0.1";  // the numeric host of the server
  bool insecure = false;           // the server listens off loopback without a token

  [[nodiscard]] bool moves_blocks() const {
    return bench == "bulk" || bench == "blocks" || (bench == "p2p" && !sends());
  }
  [[nodiscard]] bool sends() const { return bench == "p2p" && operation == "send"; }
  // An operation goes there and back, with as many bytes each way.
  [[nodiscard]] bool is_calls() const { return bench == "rpc" || bench == "notify" || bench == "connect"; }
  [[nodiscard]] bool scattered() const { return bench == "blocks" && !adjacent; }
  // Checks what the range of each flag does not (command.cc).
  [[nodiscard]] Status validate() const;
  // Returns the options as one argument for a child process, which parses it.
  [[nodiscard]] std::string to_text() const;
  static Result<Options> parse(const std::string& text);
};

}  // namespace slime::bench
