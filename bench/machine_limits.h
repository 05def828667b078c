#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/options.h"
#include "bench/pages.h"
#include "bench/process.h"
#include "bench/raw.h"
#include "bench/raw_copy.h"
#include "bench/server_end.h"

namespace slime::bench {

// Kinds of the same work without Slime, done by the same two processes in the same run.
enum class LimitKind : std::uint8_t {
  kPingPong,     // two cache lines between two processes
  kRing,         // messages through shared memory
  kTcpEcho,      // windows of messages over one TCP connection
  kTcpStream,    // bytes over one TCP connection
  kMemcpy,       // the same blocks, by the best of several copies
  kPlainMemcpy,  // the same blocks, by the C library's memcpy
  kProcessVm,    // the same blocks, by process_vm_readv or writev
  kTcpConnect,   // TCP connections, one message there and back over each
};

struct Limit {
  LimitKind kind{};
  std::string name;
  std::string figure;  // the figure that it limits: "p50_us", "ops_per_s", "gb_per_s"
  bool less_is_better = false;
  double scale = 1;  // the limit is the measured value times this
};

// Returns the options that choose and measure the limit: for the cache those of calls or blocks
// with the same bytes.
Options limit_options(const Options& options);
// Returns the limit of a measurement over a connection of `provider`: of shared memory for shm, of
// TCP for all others.
Limit choose_limit(const Options& options, std::string_view provider);
// Returns the ways to measure the limit, a word each; the best value counts.
std::vector<std::string> limit_variants(LimitKind kind, const Options& options);
std::string_view limit_word(LimitKind kind);

// The server's side of a limit. prepare() takes "<kind> <variant>" and returns a word, which the
// client's side takes behind the command. Thread: one, except for pause_while_busy() and busy().
class LimitServer {
 public:
  explicit LimitServer(const Options& options) : options_(options) {}
  Result<std::string> prepare(const std::string& command);
  // Returns when no client is served, so that the calling thread takes no core from the limit.
  void pause_while_busy() const;
  [[nodiscard]] bool busy() const { return busy_->load() != 0; }

 private:
  Result<std::string> share_ring(const RingShape& shape);
  const Options options_;
  const Busy busy_ = std::make_shared<std::atomic<int>>(0);
  Pages foreign_;
};

// The client's side: measure() takes "<kind> <variant> <word>" and returns the value. Thread: one.
class LimitClient {
 public:
  explicit LimitClient(const Options& options) : options_(options) {}
  Result<double> measure(const std::string& command);

 private:
  Result<double> copy(LimitKind kind, const std::string& variant, const std::string& argument, Nanos span);
  const Options options_;
  std::vector<Block> blocks_;
  Pages local_;
  Pages remote_;
};

struct LimitValue {
  double value = 0;
  std::string variant;
};
// Measures each variant. The LimitServer of `server` answers "RAW <command>"; `measure` is the
// client's side.
Result<std::vector<LimitValue>> measure_limit(
    const Limit& limit, const Options& options, ServerEnd& server,
    const std::function<Result<double>(const std::string& command)>& measure);

}  // namespace slime::bench
