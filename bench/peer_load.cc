// What is measured through agents: the public face of Peer.
#include <algorithm>
#include <vector>

#include "agent/peer_agent.h"
#include "base/random.h"
#include "bench/load.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

// Keeps `inflight` operations of start(slot) under way for `span`, waits for them in order, and gives each
// outcome to check(slot, result).
template <class T, class Start, class Check>
Status load(std::uint32_t inflight, Nanos span, Outcome& out, Start start, Check check) {
  struct Slot {
    TimePoint started;
    Future<T> future;
  };
  std::vector<Slot> slots(inflight);
  const double cpu_before = cpu_seconds();
  const TimePoint begin = steady_clock().now();
  for (std::uint32_t i = 0; i < inflight; ++i) slots[i] = {begin, start(i)};
  TimePoint now = begin;
  std::uint32_t live = inflight;
  for (std::uint32_t i = 0; live > 0; i = (i + 1) % inflight) {
    if (!slots[i].future.valid()) continue;
    Result<T> result = slots[i].future.wait();
    now = steady_clock().now();
    if (!result) return std::move(result).error();
    out.latency.add(static_cast<std::uint64_t>((now - slots[i].started).count()));
    ++out.operations;
    out.verified = check(i, *result) && out.verified;
    if (now - begin < span && !interrupted()) {
      slots[i].started = steady_clock().now();  // the check above is no part of an operation
      slots[i].future = start(i);
    } else {
      slots[i].future = {};
      --live;
    }
  }
  out.seconds = std::chrono::duration<double>(now - begin).count();
  out.cpu = cpu_seconds() - cpu_before;
  return {};
}

class Calls final : public Load {
 public:
  // A different payload for each slot, so that a reply to another call shows.
  Calls(Peer peer, const Options& options)
      : peer_(std::move(peer)), payloads_(options.inflight, ByteVector(options.size)) {
    for (std::uint32_t i = 0; i < options.inflight; ++i) Rng(kSeed + i).fill(payloads_[i]);
  }
  Status run(Nanos span, Outcome& out) override {
    return load<ByteVector>(
        static_cast<std::uint32_t>(payloads_.size()), span, out,
        [&](std::uint32_t i) { return peer_.call<ByteVector>("bench", "echo", payloads_[i]); },
        [&](std::uint32_t i, const ByteVector& reply) { return reply == payloads_[i]; });
  }

 private:
  Peer peer_;
  std::vector<ByteVector> payloads_;
};

// Blocks of one client in its own part of the server's region.
class Bulk final : public Load {
 public:
  static Result<std::unique_ptr<Load>> create(PeerAgent& agent, Peer peer, const Options& options,
                                              std::uint32_t index) {
    auto local = agent.allocate(region_bytes(options), Rights::kLocal);
    if (!local) return std::move(local).error();
    auto remote = peer.region("bulk");
    if (!remote) return std::move(remote).error();
    return std::unique_ptr<Load>(new Bulk(std::move(peer), options, index, std::move(*local), *remote));
  }

  Status run(Nanos span, Outcome& out) override {
    return load<None>(
        options_.inflight, span, out,
        [this](std::uint32_t i) {
          const Copy copy[] = {block(i)};
          return options_.operation == "write" ? peer_.write(copy) : peer_.read(copy);
        },
        [](std::uint32_t, const None&) { return true; });
  }

  // Reads: what came is what the server holds. Writes: bytes that were never there before come back as they
  // were sent.
  Result<bool> verify() override {
    ByteVector expected(region_bytes(options_));
    if (options_.operation == "read") {
      ByteVector all(region_bytes(options_) * options_.clients);
      Rng(kSeed).fill(all);
      expected.assign(all.begin() + static_cast<std::ptrdiff_t>(base_),
                      all.begin() + static_cast<std::ptrdiff_t>(base_ + expected.size()));
      return std::equal(expected.begin(), expected.end(), local_.data());
    }
    Rng(kSeed + 1000 + base_).fill(expected);
    std::copy(expected.begin(), expected.end(), local_.data());
    const Copy whole[] = {{local_, 0, remote_, base_, expected.size()}};
    if (auto written = peer_.write(whole).wait(); !written) return std::move(written).error();
    std::fill(local_.bytes().begin(), local_.bytes().end(), std::byte{0});
    if (auto read = peer_.read(whole).wait(); !read) return std::move(read).error();
    return std::equal(expected.begin(), expected.end(), local_.data());
  }

 private:
  Bulk(Peer peer, const Options& options, std::uint32_t index, MemoryRegion local, RemoteRegion remote)
      : peer_(std::move(peer)),
        options_(options),
        base_(index * region_bytes(options)),
        local_(std::move(local)),
        remote_(remote) {}
  Copy block(std::uint32_t i) {
    return {local_, i * options_.size, remote_, base_ + i * options_.size, options_.size};
  }

  Peer peer_;
  const Options options_;
  const std::uint64_t base_;
  MemoryRegion local_;
  RemoteRegion remote_;
};

}  // namespace

Result<std::unique_ptr<Load>> make_peer_load(PeerAgent& agent, Peer peer, const Options& options,
                                             std::uint32_t index) {
  if (options.bench == "bulk") return Bulk::create(agent, std::move(peer), options, index);
  return std::unique_ptr<Load>(new Calls(std::move(peer), options));
}

}  // namespace slime::bench
