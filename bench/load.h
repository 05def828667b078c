#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "base/clock.h"
#include "base/result.h"
#include "bench/histogram.h"
#include "bench/options.h"
#include "bench/pages.h"
#include "bench/process.h"
#include "transport/endpoint.h"

namespace slime::bench {

struct Outcome {
  Histogram latency;
  std::uint64_t operations = 0;
  double seconds = 0;
  double cpu = 0;
  bool verified = true;
  std::uint64_t faults = 0;            // page faults of this process
  std::uint64_t blocks = 0;            // cold: moved blocks
  std::uint64_t distinct = 0;          // cold: different blocks among them
  transport::EndpointCounters device;  // requests to a device; zeros without a device
};

// The operations of a client, again and again. Thread: one.
class Load {
 public:
  virtual ~Load() = default;
  // Runs until `span` is over, or Ctrl-C.
  virtual Status run(Nanos span, Outcome& out) = 0;
  // Touches all memory that run() uses: the first use of memory costs more.
  virtual Status warm_up(Nanos span) {
    Outcome unused;
    return run(span, unused);
  }
  // Returns whether the bytes are right after run().
  virtual Result<bool> verify() { return true; }
};

// Keeps `count` operations under way until `span` is over, or Ctrl-C, and adds them to `out`.
// start(i) begins operation i, finish(i) waits for it, check(i) returns whether its result is
// right. With `checks`, the time of check() does not count.
template <class Start, class Finish, class Check>
Status keep_under_way(std::uint32_t count, Nanos span, Outcome& out, bool checks, Start start, Finish finish,
                      Check check) {
  std::vector<TimePoint> started(count);
  const double cpu_before = cpu_seconds();
  const std::uint64_t faults_before = page_faults();
  const TimePoint begin = steady_clock().now();
  for (std::uint32_t i = 0; i < count; ++i) {
    started[i] = begin;
    SLIME_TRY(start(i));
  }
  TimePoint now = begin;
  std::uint32_t live = count;
  for (std::uint32_t i = 0; live > 0; i = i + 1 == count ? 0 : i + 1) {
    if (started[i] == TimePoint{}) continue;
    SLIME_TRY(finish(i));
    now = steady_clock().now();
    out.latency.add(static_cast<std::uint64_t>((now - started[i]).count()));
    ++out.operations;
    out.verified = check(i) && out.verified;
    if (now - begin < span && !interrupted()) {
      started[i] = checks ? steady_clock().now() : now;
      SLIME_TRY(start(i));
    } else {
      started[i] = {};
      --live;
    }
  }
  out.seconds = std::chrono::duration<double>(now - begin).count();
  out.cpu = cpu_seconds() - cpu_before;
  out.faults = page_faults() - faults_before;
  return {};
}

// Allocates memory for bulk transfers and touches all of it: Slime's memory, or the program's own,
// which `foreign` then owns.
Result<MemoryRegion> make_region(PeerAgent& agent, const Options& options, std::uint64_t bytes, Rights rights,
                                 Pages& foreign);

// Answers the driver's commands until stdin ends. With `poll`, answers in a thread, while this
// thread calls poll() again and again, except while a limit is measured.
void serve_commands(const Options& options, const std::function<void()>& poll = {});

// Makes a load through the public face of an agent, which outlives the load.
Result<std::unique_ptr<Load>> make_peer_load(PeerAgent& agent, Peer peer, const Options& options,
                                             std::uint32_t index);
// Makes a load through a Channel and its endpoint, and connects it to the server at `address`.
Result<std::unique_ptr<Load>> make_channel_load(const Options& options, const std::string& address,
                                                std::uint32_t index);

}  // namespace slime::bench
