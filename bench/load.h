#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "agent/peer_agent.h"
#include "base/clock.h"
#include "base/result.h"
#include "bench/histogram.h"
#include "bench/options.h"
#include "bench/pages.h"
#include "transport/endpoint.h"

namespace slime::bench {

struct Outcome {
  Histogram latency;
  std::uint64_t operations = 0;
  double seconds = 0;
  double cpu = 0;
  bool verified = true;
  std::uint64_t faults = 0;            // of pages, in this process
  std::uint64_t blocks = 0;            // cold: that were moved
  std::uint64_t distinct = 0;          // cold: of these, different ones
  transport::EndpointCounters device;  // what a device was given meanwhile; zeros where there is none
};

// What a client does to its server, again and again. Thread: one.
class Load {
 public:
  virtual ~Load() = default;
  // Until `span` is over or Ctrl-C.
  virtual Status run(Nanos span, Outcome& out) = 0;
  // Touches everything that run() will: what is used for the first time costs more.
  virtual Status warm_up(Nanos span) {
    Outcome unused;
    return run(span, unused);
  }
  // Whether the bytes are right, afterwards.
  virtual Result<bool> verify() { return true; }
};

// Memory for bulk transfers, all of it touched: Slime's, or the program's own, which stays in `foreign`.
Result<MemoryRegion> make_region(PeerAgent& agent, const Options& options, std::uint64_t bytes, Rights rights,
                                 Pages& foreign);

// Through the public face of an agent. The agent and the peer outlive it.
Result<std::unique_ptr<Load>> make_peer_load(PeerAgent& agent, Peer peer, const Options& options,
                                             std::uint32_t index);
// Through a Channel and its endpoint, without an agent: connects to the server at `address`.
Result<std::unique_ptr<Load>> make_channel_load(const Options& options, const std::string& address,
                                                std::uint32_t index);

}  // namespace slime::bench
