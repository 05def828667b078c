// What an operation costs by itself: on a verbs library without a device, with both ends in this
// process.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/direct.h"
#include "bench/figures.h"
#include "bench/instructions.h"
#include "bench/load.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint32_t kBatch = 4096;  // operations between two readings of the clock

// Loads the library in place of libibverbs: a library that is loaded already is taken by its name.
Status load_library(const std::string& given) {
  std::error_code error;
  const fs::path file = given.empty()
                            ? fs::read_symlink("/proc/self/exe", error).parent_path().parent_path() /
                                  "bench/null_verbs/libibverbs.so.1"
                            : fs::absolute(given);
  if (::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return {};
  const char* const why = ::dlerror();
  return {Code::kUnavailable,
          str("no null verbs library (", why != nullptr ? why : "no reason given",
              "): build it (cmake --build build/release --target null_verbs), or name it with --library")};
}

// Two ends whose operations are measured. Thread: one.
class NullEnds {
 public:
  virtual ~NullEnds() = default;
  // Begin an operation in a slot that has none; wait for its end.
  virtual Status start(std::uint32_t slot) = 0;
  virtual Status finish(std::uint32_t slot) = 0;
  // Returns whether an operation moves the right bytes. Call while none is under way.
  virtual Result<bool> verify() = 0;
  [[nodiscard]] virtual transport::EndpointCounters counters() const { return {}; }
};

Options options_of(const NullOptions& options) {
  const bool agents = options.face == "peer";
  Options out;
  out.bench = options.face == "channel" ? "rpc" : "bulk";
  out.face = agents ? "peer" : "channel";
  out.provider = "verbs";
  out.mode = agents ? options.mode : "caller";
  out.size = options.size;
  out.inflight = options.inflight;
  return out;
}

// Fills `from` with new bytes, moves them in one operation of each slot, and compares.
Result<bool> moves_bytes(NullEnds& ends, const NullOptions& options, MutableBytes from, Bytes to) {
  Rng(kSeed).fill(from);
  for (std::uint32_t slot = 0; slot < options.inflight; ++slot) SLIME_TRY(ends.start(slot));
  for (std::uint32_t slot = 0; slot < options.inflight; ++slot) SLIME_TRY(ends.finish(slot));
  return same_bytes(from, to);
}

// Writes of an agent.
class AgentEnds final : public NullEnds {
 public:
  static Result<std::unique_ptr<NullEnds>> make(const NullOptions& options) {
    std::unique_ptr<AgentEnds> out(new AgentEnds(options));
    SLIME_TRY(out->open());
    return std::unique_ptr<NullEnds>(std::move(out));
  }
  Status start(std::uint32_t slot) override { return face_->move(slot, slot, 1, true); }
  Status finish(std::uint32_t slot) override { return face_->finish(slot); }
  Result<bool> verify() override { return moves_bytes(*this, options_, face_->memory(), region_.bytes()); }

 private:
  explicit AgentEnds(const NullOptions& options) : options_(options) {}
  Status open() {
    const Options options = options_of(options_);
    PeerAgentOptions server_options = agent_options(options, "null-server");
    server_options.progress = Progress::kThread;  // it sleeps while the client writes
    auto server = PeerAgent::start(server_options);
    if (!server) return std::move(server).error();
    server_ = std::move(*server);
    auto region = server_->allocate(region_bytes(options), Rights::kReadWrite);
    if (!region) return std::move(region).error();
    region_ = std::move(*region);
    SLIME_TRY(server_->publish("bulk", region_));
    const auto connection = connect_agent(options, server_->address(), 0);
    if (!connection) return connection.error();
    face_ = make_peer_face(options, *connection);
    std::vector<Block> blocks;
    for (std::uint64_t i = 0; i < options.inflight; ++i)
      blocks.push_back({i * options.size, i * options.size});
    return face_->use_blocks(blocks, 0);
  }

  const NullOptions options_;
  std::unique_ptr<PeerAgent> server_;
  MemoryRegion region_;
  std::unique_ptr<Face> face_;
};

// Writes of an endpoint, or calls of a Channel, without agents. The thread that measures drives the
// loops of both ends.
class DirectEnds final : public NullEnds {
 public:
  static Result<std::unique_ptr<NullEnds>> make(const NullOptions& options) {
    std::unique_ptr<DirectEnds> out(new DirectEnds(options));
    SLIME_TRY(out->open());
    return std::unique_ptr<NullEnds>(std::move(out));
  }

  Status start(std::uint32_t slot) override {
    Slot& mine = slots_[slot];
    mine.done = false;
    if (!calls_) return client_->channel().endpoint().write({&copies_[slot], 1}, mine);
    client_->channel().call({.service = "bench", .method = "echo"}, rpc::encode_arguments(payload_),
                            [&mine](Result<rpc::Payload> reply) {
                              if (reply) mine.reply = std::move(*reply);
                              mine.complete(reply.status());
                            });
    return {};
  }
  Status finish(std::uint32_t slot) override {
    Slot& mine = slots_[slot];
    while (!mine.done) {
      client_->loop().poll(Nanos::zero());
      if (calls_) server_->loop().poll(Nanos::zero());
    }
    return std::move(mine.status);
  }
  Result<bool> verify() override {
    if (!calls_) return moves_bytes(*this, options_, client_->region().bytes(), server_->region().bytes());
    SLIME_TRY(start(0));
    SLIME_TRY(finish(0));
    const auto value = rpc::decode_value<ByteVector>(slots_[0].reply.bytes());
    return value && same_bytes(*value, payload_);
  }
  [[nodiscard]] transport::EndpointCounters counters() const override {
    return client_->channel().endpoint().counters();
  }

 private:
  struct Slot final : transport::Operation {
    void complete(Status outcome) noexcept override {
      status = std::move(outcome);
      done = true;
    }
    Status status;
    bool done = true;
    rpc::Payload reply;
  };

  explicit DirectEnds(const NullOptions& options)
      : options_(options),
        calls_(options.face == "channel"),
        payload_(options.size),
        slots_(options.inflight) {
    Rng(kSeed).fill(payload_);
  }

  Status open() {
    const Options options = options_of(options_);
    auto server = Direct::create(options, "bench-server", region_bytes(options));
    if (!server) return std::move(server).error();
    server_ = std::move(*server);
    SLIME_TRY(server_->serve());
    auto client = Direct::create(options, "null-client", region_bytes(options));
    if (!client) return std::move(client).error();
    client_ = std::move(*client);
    SLIME_TRY(connect());
    for (std::uint64_t i = 0; i < options.inflight; ++i)
      copies_.push_back({&client_->region(), i * options.size, &remote_, i * options.size, options.size});
    return {};
  }

  // Connecting waits, so another thread drives the server meanwhile.
  Status connect() {
    std::atomic<bool> over{false};
    std::thread serving([&] {
      while (!over.load()) server_->loop().poll(std::chrono::milliseconds(1));
    });
    Status status = client_->connect(server_->address());
    if (status.ok()) {
      auto remote = client_->peer_region();
      if (remote)
        remote_ = std::move(*remote);
      else
        status = std::move(remote).error();
    }
    over.store(true);
    serving.join();
    return status;
  }

  const NullOptions options_;
  const bool calls_;
  ByteVector payload_;
  std::unique_ptr<Direct> server_;
  std::unique_ptr<Direct> client_;
  transport::RemoteRegion remote_;
  std::vector<transport::CopyBlock> copies_;
  std::vector<Slot> slots_;
};

struct NullRound {
  std::uint64_t operations = 0;
  double nanos = 0;
  std::optional<double> instructions;
};

// Repeats operations for `span`, `inflight` at a time.
Status repeat(NullEnds& ends, std::uint32_t inflight, Nanos span, NullRound& out) {
  const Instructions instructions;
  for (std::uint32_t slot = 0; slot < inflight; ++slot) SLIME_TRY(ends.start(slot));
  const auto before = instructions.count();
  const TimePoint begin = steady_clock().now();
  TimePoint now = begin;
  std::uint32_t slot = 0;
  while (now - begin < span && !interrupted()) {
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      SLIME_TRY(ends.finish(slot));
      SLIME_TRY(ends.start(slot));
      slot = slot + 1 == inflight ? 0 : slot + 1;
    }
    out.operations += kBatch;
    now = steady_clock().now();
  }
  const auto after = instructions.count();
  out.nanos = static_cast<double>((now - begin).count());
  if (before && after) out.instructions = static_cast<double>(*after - *before);
  for (std::uint32_t i = 0; i < inflight; ++i) SLIME_TRY(ends.finish(i));
  return {};
}

}  // namespace

Result<std::string> measure_null(const NullOptions& options) {
  install_interrupt_flag();
  SLIME_TRY(load_library(options.library));
  auto ends = options.face == "peer" ? AgentEnds::make(options) : DirectEnds::make(options);
  if (!ends) return std::move(ends).error();
  NullRound warm;
  SLIME_TRY(repeat(**ends, options.inflight, to_nanos(std::min(options.seconds, 0.1)), warm));
  const transport::EndpointCounters before = (*ends)->counters();
  NullRound round;
  SLIME_TRY(repeat(**ends, options.inflight, to_nanos(options.seconds), round));
  const transport::EndpointCounters after = (*ends)->counters();
  if (interrupted()) return Status(Code::kCancelled, "interrupted");
  const auto verified = (*ends)->verify();
  if (!verified) return verified.error();

  const auto operations = static_cast<double>(round.operations);
  json out = {{"bench", "null"},
              {"provider", "verbs"},
              {"face", options.face},
              {"operation", options.face == "channel" ? "call" : "write"},
              {"mode", options.face == "peer" ? options.mode : "caller"},
              {"size", options.size},
              {"inflight", options.inflight},
              {"seconds", round.nanos / 1e9},
              {"operations", round.operations},
              {"ns_per_op", round.nanos / operations},
              {"verified", *verified},
              {"machine", machine_facts()}};
  if (round.instructions) out["instructions_per_op"] = *round.instructions / operations;
  if (options.face != "peer") {
    // The counters have the operations that were under way at the end, too.
    const auto each = [&](std::uint64_t transport::EndpointCounters::*counter) {
      return static_cast<double>(after.*counter - before.*counter) / (operations + options.inflight);
    };
    out["per_operation"] = {{"work_requests", each(&transport::EndpointCounters::work_requests)},
                            {"doorbells", each(&transport::EndpointCounters::doorbells)},
                            {"completions", each(&transport::EndpointCounters::completions)}};
  }
  return out.dump();
}

}  // namespace slime::bench
