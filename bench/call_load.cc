// Calls: of one thread, of several that share an agent, and beside writes to the same peer.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/random.h"
#include "bench/load.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

class Calls final : public Load {
 public:
  // Each slot has its own payload, so that the reply of another call is found to be wrong. `first`:
  // the number of this thread's first slot among those of the client.
  Calls(std::unique_ptr<Face> face, const Options& options, std::uint32_t first = 0)
      : Load(options.inflight, true),
        face_(std::move(face)),
        payloads_(options.inflight, ByteVector(options.size)) {
    for (std::uint32_t i = 0; i < options.inflight; ++i) Rng(kSeed + first + i).fill(payloads_[i]);
  }

 private:
  Status start(std::uint32_t slot) override { return face_->call(slot, payloads_[slot]); }
  Status finish(std::uint32_t slot) override { return face_->finish(slot); }
  bool check(std::uint32_t slot) override { return face_->brought_back(slot, payloads_[slot]); }
  [[nodiscard]] transport::EndpointCounters counters() const override { return face_->counters(); }

  const std::unique_ptr<Face> face_;
  std::vector<ByteVector> payloads_;
};

// A load that consists of others.
class Composed : public Load {
 public:
  Composed() : Load(0, false) {}

 private:
  Status start(std::uint32_t) override { return {}; }
  Status finish(std::uint32_t) override { return {}; }
};

// Loads at the same time, each in a thread of its own.
class Threads final : public Composed {
 public:
  explicit Threads(std::vector<std::unique_ptr<Load>> loads) : loads_(std::move(loads)) {}

  Status run(Nanos span, Outcome& out) override {
    std::vector<Outcome> outcomes(loads_.size());
    std::vector<Status> statuses(loads_.size());
    const double cpu_before = cpu_seconds();
    const std::uint64_t faults_before = page_faults();
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < loads_.size(); ++i)
      threads.emplace_back([&, i] { statuses[i] = loads_[i]->run(span, outcomes[i]); });
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) SLIME_TRY(status);
    for (const Outcome& one : outcomes) {
      out.latency.add_buckets(one.latency.buckets());
      out.operations += one.operations;
      out.seconds = std::max(out.seconds, one.seconds);
      out.verified = out.verified && one.verified;
    }
    out.cpu = cpu_seconds() - cpu_before;
    out.faults = page_faults() - faults_before;
    return {};
  }

 private:
  std::vector<std::unique_ptr<Load>> loads_;
};

// Calls, while a thread writes one large block to the same peer, again and again.
class Beside final : public Composed {
 public:
  Beside(std::unique_ptr<Load> calls, Connection connection)
      : connection_(std::move(connection)), calls_(std::move(calls)) {}

  Status prepare(std::uint64_t bytes) {
    auto local = connection_.agent->allocate(bytes, Rights::kLocal);
    if (!local) return std::move(local).error();
    local_ = std::move(*local);
    auto back = connection_.agent->allocate(std::min(bytes, kCompared), Rights::kLocal);
    if (!back) return std::move(back).error();
    back_ = std::move(*back);
    auto remote = connection_.peer.region("beside");
    if (!remote) return std::move(remote).error();
    remote_ = *remote;
    Rng(kSeed + 1).fill(local_.bytes());
    // Once before anything is measured: the first touch of each page takes several times as long.
    const Copy copy{.local = local_, .remote = remote_, .length_bytes = bytes};
    return connection_.peer.write({&copy, 1}).wait().status();
  }

  Status run(Nanos span, Outcome& out) override {
    std::atomic<bool> begun{false};
    std::atomic<bool> over{false};
    Status written;
    std::thread writer([&] { written = write_until(over, begun, out); });
    begun.wait(false);
    const Status called = calls_->run(span, out);
    over.store(true);
    writer.join();
    return called.ok() ? written : called;
  }

  // Reads the end of the block back, and compares.
  Result<bool> verify() override {
    const std::uint64_t length = back_.bytes().size();
    const std::uint64_t at = local_.bytes().size() - length;
    const Copy copy{.local = back_, .remote = remote_, .remote_offset = at, .length_bytes = length};
    auto read = connection_.peer.read({&copy, 1}).wait();
    if (!read) return std::move(read).error();
    return same_bytes(back_.bytes(), local_.bytes().subspan(at));
  }

 private:
  static constexpr std::uint64_t kCompared = 1 << 20;

  // The calls begin when the first write is under way; the last write ends after the last call.
  Status write_until(const std::atomic<bool>& over, std::atomic<bool>& begun, Outcome& out) {
    const Copy copy{.local = local_, .remote = remote_, .length_bytes = local_.bytes().size()};
    const TimePoint begin = steady_clock().now();
    Status status;
    do {
      auto write = connection_.peer.write({&copy, 1});
      begun.store(true);
      begun.notify_one();
      status = write.wait().status();
      out.beside_bytes += copy.length_bytes;
    } while (status.ok() && !over.load());
    out.beside_seconds += std::chrono::duration<double>(steady_clock().now() - begin).count();
    return status;
  }

  Connection connection_;  // outlives the regions
  const std::unique_ptr<Load> calls_;
  MemoryRegion local_;
  MemoryRegion back_;
  RemoteRegion remote_;
};

std::unique_ptr<Load> make_calls(const Options& options, const Connection& connection) {
  if (options.threads == 1) return std::make_unique<Calls>(make_peer_face(options, connection), options);
  Options part = options;
  part.inflight = options.inflight / options.threads;
  std::vector<std::unique_ptr<Load>> loads;
  for (std::uint32_t i = 0; i < options.threads; ++i)
    loads.push_back(std::make_unique<Calls>(make_peer_face(part, connection), part, i * part.inflight));
  return std::make_unique<Threads>(std::move(loads));
}

}  // namespace

Result<LoadClient> make_call_load(const Options& options, const std::string& address, std::uint32_t index) {
  if (options.face == "channel") {
    auto face = make_channel_face(options, address, index);
    if (!face) return std::move(face).error();
    return LoadClient{std::make_unique<Calls>(std::move(*face), options), options.provider};
  }
  auto connection = connect_agent(options, address, index);
  if (!connection) return std::move(connection).error();
  const std::string provider = connection->peer.info().provider;
  auto calls = make_calls(options, *connection);
  if (options.beside_bytes == 0) return LoadClient{std::move(calls), provider};
  auto beside = std::make_unique<Beside>(std::move(calls), *connection);
  SLIME_TRY(beside->prepare(options.beside_bytes));
  return LoadClient{std::move(beside), provider};
}

}  // namespace slime::bench
