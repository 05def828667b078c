#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "base/result.h"
#include "transport/endpoint.h"
#include "transport/loop.h"
#include "transport/provider.h"

namespace slime::transport::sim {

struct SimOptions {
  std::uint64_t seed = 1;
  // Each piece of a stream arrives after a random delay from min_delay to max_delay. Pieces of one
  // direction arrive in the order in which they were written.
  Nanos min_delay = std::chrono::microseconds(1);
  Nanos max_delay = std::chrono::microseconds(50);
  // capacity of one direction; a full one takes no bytes, like a full socket buffer
  std::uint32_t capacity_bytes = 128 * 1024;
  // If true, a read or write may move only a random part, from the beginning, of the bytes that it
  // could move.
  bool torn = true;
  // Device::prefers_own_memory() of its hosts
  bool prefers_own_memory = true;
  bool long_messages = false;  // Wire::takes_long_messages()
};

class SimWire;
class SimHost;

// Simulated processes, the links between them and the time. All use one loop, one manual clock and
// one random seed, so that a run repeats exactly. The endpoints run the same software engine as
// those of tcp. Thread: one.
class SimFabric {
 public:
  explicit SimFabric(SimOptions options = {});
  ~SimFabric();
  SimFabric(const SimFabric&) = delete;
  SimFabric& operator=(const SimFabric&) = delete;

  Loop& loop() { return *loop_; }
  ManualClock& clock() { return clock_; }
  Rng& rng() { return rng_; }

  // Makes a simulated process, with a device and a port of its own. Its endpoints must be destroyed
  // before it.
  Result<std::unique_ptr<SimHost>> make_host(PortOptions options = {});

  struct Pair {
    std::unique_ptr<Endpoint> a;
    std::unique_ptr<Endpoint> b;
    std::uint64_t link = 0;  // names the link for the faults below
  };
  // Connects two hosts through prepare(), parameters() and finish(), as a handshake does.
  Result<Pair> connect(SimHost& a, SimHost& b);

  // ---- faults
  // Breaks the link. Both ends are told at once; bytes in flight are lost.
  void break_link(std::uint64_t link);
  // From now on side 0 (a) or 1 (b) of a link gets no events, like a stopped process. The peer can
  // write until the link is full.
  void freeze(std::uint64_t link, int side);
  void thaw(std::uint64_t link, int side);
  // Makes a later write of `side` fail, and breaks the link then. `n` is the number of writes
  // before the one that fails; 0: the next one fails.
  void fail_write(std::uint64_t link, int side, std::uint32_t n);

  // ---- time
  // Runs one turn of the loop. If nothing is due, first moves the clock to the next timer. Returns
  // false if nothing is due and there is no timer.
  bool step();
  // Calls step() until nothing is left to do or `limit` of simulated time has passed.
  void run_until_idle(Nanos limit = std::chrono::hours(1));
  // Calls step() until `done()` returns true. Returns false if `limit` has passed before, or
  // nothing is left to do.
  template <class F>
  bool run_until(F done, Nanos limit = std::chrono::minutes(10)) {
    const TimePoint end = clock_.now() + limit;
    while (!done()) {
      if (clock_.now() >= end || !step()) return done();
    }
    return true;
  }

 private:
  friend class SimWire;
  struct Link;
  Link* find(std::uint64_t link);

  const SimOptions options_;
  ManualClock clock_;
  Rng rng_;
  std::shared_ptr<Loop> loop_;
  std::vector<std::shared_ptr<Link>> links_;
  std::uint64_t next_link_ = 1;
};

// A simulated process. SimFabric::connect() makes its endpoints.
class SimHost {
 public:
  SimHost();
  ~SimHost();
  Device& device() { return *device_; }
  Port& port() { return *port_; }

 private:
  friend class SimFabric;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Port> port_;
  std::shared_ptr<std::unique_ptr<SimWire>> next_wire_;  // the wire for the device's next finish()
};

}  // namespace slime::transport::sim
