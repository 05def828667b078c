#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/blocks.h"
#include "bench/options.h"
#include "bench/pages.h"
#include "bench/process.h"
#include "bench/raw.h"

namespace slime::bench {

// What a figure is set against: the same work without Slime, by the same two processes and in the same run.
enum class LimitKind : std::uint8_t {
  kPingPong,     // two cache lines between two processes
  kRing,         // messages through shared memory, as many under way
  kTcpEcho,      // windows of messages over one TCP connection
  kTcpStream,    // bytes over one TCP connection
  kMemcpy,       // the same blocks, by the best copy there is
  kPlainMemcpy,  // the same blocks, by the C library's memcpy
  kProcessVm,    // the same blocks, by process_vm_readv or writev
};

struct Limit {
  LimitKind kind{};
  std::string name;
  std::string figure;  // of the report that it belongs to: "p50_us", "ops_per_s", "gb_per_s"
  bool less_is_better = false;
  double scale = 1;  // what is measured times this is the limit
};

// By what is compared: what went through shared memory has the limits of shared memory. `provider` is that of
// the connection.
Limit choose_limit(const Options& options, std::string_view provider);
// Ways to do the same; the best one counts. A word each.
std::vector<std::string> limit_variants(LimitKind kind, const Options& options);
std::string_view limit_word(LimitKind kind);

// One side of a limit, in the process of a measurement. Spoken to by the driver: "<kind> <variant>" to the
// server, whose answer is a word; this too behind it to the client, whose answer is the value. Thread: one,
// but for pause_while_busy().
class LimitServer {
 public:
  explicit LimitServer(const Options& options) : options_(options) {}
  Result<std::string> prepare(const std::string& command);
  // Returns when nobody is served: a thread that waits in the meantime takes no core from it.
  void pause_while_busy() const;
  [[nodiscard]] bool busy() const { return busy_->load() != 0; }

 private:
  Result<std::string> share_ring(const RingShape& shape);
  const Options options_;
  const Busy busy_ = std::make_shared<std::atomic<int>>(0);
  Pages foreign_;
};

class LimitClient {
 public:
  explicit LimitClient(const Options& options) : options_(options) {}
  Result<double> measure(const std::string& command);

 private:
  Status allocate(bool remote);
  Result<double> copy(LimitKind kind, const std::string& variant, const std::string& argument, Nanos span);
  const Options options_;
  std::vector<Block> blocks_;
  Pages local_;
  Pages remote_;
};

// The value of each variant. `server` has a LimitServer that takes "RAW <command>";
// `measure` is the client's side: gets a command, returns a value.
struct LimitValue {
  double value = 0;
  std::string variant;
};
Result<std::vector<LimitValue>> measure_limit(
    const Limit& limit, const Options& options, Child& server,
    const std::function<Result<double>(const std::string& command)>& measure);

}  // namespace slime::bench
