#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "agent/peer_agent.h"
#include "base/clock.h"
#include "base/result.h"
#include "bench/histogram.h"
#include "bench/options.h"
#include "bench/raw_copy.h"
#include "cache/server.h"
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
  std::uint64_t beside_bytes = 0;      // of the writes beside the calls
  double beside_seconds = 0;           // that they took
  transport::EndpointCounters device;  // requests to a device; zeros without a device
};

// Operations, again and again, each in a slot of its own while it is under way. Thread: one.
class Load {
 public:
  // With `checks`, check() takes time, which does not count.
  Load(std::uint32_t slots, bool checks) : slots_(slots), checks_(checks) {}
  virtual ~Load() = default;
  // Keeps an operation in each slot under way until `span` is over, or Ctrl-C. Adds them to `out`.
  virtual Status run(Nanos span, Outcome& out);
  // Ends run() after this many operations in place of its span; 0: after the span.
  void stop_after(std::uint64_t operations) { stop_after_ = operations; }
  // Touches all memory that run() uses: the first use of memory costs more.
  virtual Status warm_up(Nanos span) {
    Outcome unused;
    return run(span, unused);
  }
  // Returns whether the bytes are right after run().
  virtual Result<bool> verify() { return true; }

 protected:
  [[nodiscard]] std::uint32_t slots() const { return slots_; }

 private:
  virtual Status start(std::uint32_t slot) = 0;
  virtual Status finish(std::uint32_t slot) = 0;
  // Returns whether the result of the operation that ended last in this slot is right.
  virtual bool check(std::uint32_t) { return true; }
  [[nodiscard]] virtual transport::EndpointCounters counters() const { return {}; }

  const std::uint32_t slots_;
  const bool checks_;
  std::uint64_t stop_after_ = 0;
};

// A client's connection to the server: of an agent, or a Channel and its endpoint, which the caller
// drives. Thread: one.
class Face {
 public:
  virtual ~Face() = default;
  [[nodiscard]] virtual std::string provider() const = 0;
  [[nodiscard]] virtual transport::EndpointCounters counters() const { return {}; }

  // Begin an operation in a slot that has none: a call, or the transfer of `count` blocks from
  // block `first` on. finish() waits for its end.
  virtual Status call(std::uint32_t slot, const ByteVector& payload) = 0;
  virtual Status move(std::uint32_t slot, std::size_t first, std::size_t count, bool write) = 0;
  virtual Status finish(std::uint32_t slot) = 0;
  // Returns whether the call that ended last in this slot brought the payload back.
  virtual bool brought_back(std::uint32_t slot, const ByteVector& payload) = 0;

  // Sets the blocks of move(). Their offsets are in memory(), and from `base` on in the server's
  // region.
  virtual Status use_blocks(std::span<const Block> blocks, std::uint64_t base) = 0;
  // The client's memory.
  [[nodiscard]] virtual MutableBytes memory() const = 0;
};

// An agent that is connected to the server. Several faces may share it. Thread: any.
struct Connection {
  std::shared_ptr<PeerAgent> agent;
  Peer peer;
};
Result<Connection> connect_agent(const Options& options, const std::string& address, std::uint32_t index);
std::unique_ptr<Face> make_peer_face(const Options& options, const Connection& connection);

// Connects to the server at `address`.
Result<std::unique_ptr<Face>> make_channel_face(const Options& options, const std::string& address,
                                                std::uint32_t index);

// A load that is connected, and the provider of its connection.
struct LoadClient {
  std::unique_ptr<Load> load;
  std::string provider;
};
// Connect to the server at `address`.
Result<LoadClient> make_call_load(const Options& options, const std::string& address, std::uint32_t index);
Result<LoadClient> make_block_load(const Options& options, const std::string& address, std::uint32_t index);
Result<LoadClient> make_message_load(const Options& options, const std::string& address);
Result<LoadClient> make_notify_load(const Options& options, const std::string& address);
Result<LoadClient> make_connect_load(const Options& options, const std::string& address);
Result<LoadClient> make_cache_load(const Options& options, const std::string& address);

Result<std::unique_ptr<cache::CacheServer>> start_cache_server(PeerAgent& agent, const Options& options);

// Answers the driver's commands until stdin ends. In caller mode answers in a thread, while this
// thread calls poll() again and again, except while a limit is measured.
void serve_commands(const Options& options, const std::function<void()>& poll);

}  // namespace slime::bench
