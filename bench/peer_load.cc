// Loads through agents: the public face of Peer.
#include <algorithm>
#include <optional>
#include <vector>

#include "agent/peer_agent.h"
#include "base/random.h"
#include "bench/load.h"
#include "bench/process.h"
#include "bench/raw_copy.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

// Waits for `futures` of start(i), and gives each result to check(i, result).
template <class T, class Start, class Check>
Status load(std::uint32_t inflight, Nanos span, Outcome& out, bool checks, Start start, Check check) {
  std::vector<Future<T>> futures(inflight);
  std::optional<Result<T>> result;
  return keep_under_way(
      inflight, span, out, checks,
      [&](std::uint32_t i) {
        futures[i] = start(i);
        return Status();
      },
      [&](std::uint32_t i) { return result.emplace(futures[i].wait()).status(); },
      [&](std::uint32_t i) {
        const bool right = check(i, **result);
        result.reset();
        return right;
      });
}

class Calls final : public Load {
 public:
  // Each slot has a payload of its own, so that a reply that belongs to another call is noticed.
  Calls(Peer peer, const Options& options)
      : peer_(std::move(peer)), payloads_(options.inflight, ByteVector(options.size)) {
    for (std::uint32_t i = 0; i < options.inflight; ++i) Rng(kSeed + i).fill(payloads_[i]);
  }
  Status run(Nanos span, Outcome& out) override {
    return load<ByteVector>(
        static_cast<std::uint32_t>(payloads_.size()), span, out, true,
        [&](std::uint32_t i) { return peer_.call<ByteVector>("bench", "echo", payloads_[i]); },
        [&](std::uint32_t i, const ByteVector& reply) { return same_bytes(reply, payloads_[i]); });
  }

 private:
  Peer peer_;
  std::vector<ByteVector> payloads_;
};

// Blocks in the client's own part of the server's region; cold ones in the whole region.
class Bulk final : public Load {
 public:
  static Result<std::unique_ptr<Load>> create(PeerAgent& agent, Peer peer, const Options& options,
                                              std::uint32_t index) {
    std::unique_ptr<Bulk> out(new Bulk(std::move(peer), options, index));
    auto local = make_region(agent, options, region_bytes(options), Rights::kLocal, out->foreign_);
    if (!local) return std::move(local).error();
    out->local_ = std::move(*local);
    Rng(kSeed + 1).fill(out->local_.bytes());  // zeros move faster (Pages::create)
    auto remote = out->peer_.region("bulk");
    if (!remote) return std::move(remote).error();
    out->remote_ = *remote;
    return std::unique_ptr<Load>(std::move(out));
  }

  // Moves each cold block once, for as long as that takes.
  Status warm_up(Nanos span) override {
    Outcome unused;
    SLIME_TRY(run(span, unused));
    std::size_t done = options_.cold ? 0 : blocks_.size();
    std::vector<Future<None>> slots(options_.inflight);
    for (; done < blocks_.size() && !interrupted(); done += slots.size() * options_.count) {
      for (auto& slot : slots) slot = start(next());
      for (auto& slot : slots) SLIME_TRY(slot.wait().status());
    }
    return {};
  }

  Status run(Nanos span, Outcome& out) override {
    seen_.assign(blocks_.size(), false);
    SLIME_TRY(load<None>(
        options_.inflight, span, out, false,
        [this](std::uint32_t i) {
          const std::size_t first = options_.cold ? next() : std::size_t{i} * options_.count;
          seen_[first] = true;
          return start(first);
        },
        [](std::uint32_t, const None&) { return true; }));
    if (!options_.cold) return {};
    out.blocks = out.operations * options_.count;
    out.distinct = static_cast<std::uint64_t>(std::count(seen_.begin(), seen_.end(), true)) * options_.count;
    return {};
  }

  // Compares reads of hot blocks with the server's bytes. Otherwise writes new bytes, reads them
  // back and compares.
  Result<bool> verify() override {
    if (options_.cold) return verify_cold();
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
  Bulk(Peer peer, const Options& options, std::uint32_t index)
      : peer_(std::move(peer)),
        options_(options),
        base_(index * region_bytes(options)),
        blocks_(block_list(options)) {}

  // Returns the first block of the next operation; the list repeats.
  std::size_t next() {
    const std::size_t out = cursor_;
    cursor_ = cursor_ + options_.count < blocks_.size() ? cursor_ + options_.count : 0;
    return out;
  }
  std::vector<Copy> operation(std::size_t first) {
    std::vector<Copy> out;
    out.reserve(options_.count);
    for (std::size_t i = first; i < first + options_.count; ++i) {
      out.push_back({local_, blocks_[i].local, remote_, base_ + blocks_[i].remote, options_.size});
    }
    return out;
  }
  Future<None> start(std::size_t first) {
    if (options_.count == 1) {
      const Block& block = blocks_[first];
      const Copy one[] = {{local_, block.local, remote_, base_ + block.remote, options_.size}};
      return options_.operation == "write" ? peer_.write(one) : peer_.read(one);
    }
    const std::vector<Copy> copies = operation(first);
    return options_.operation == "write" ? peer_.write(copies) : peer_.read(copies);
  }

  Result<bool> verify_cold() {
    const std::vector<Copy> copies = operation(next());
    for (const Copy& copy : copies) Rng(kSeed + copy.local_offset).fill(bytes_of(copy));
    if (auto written = peer_.write(copies).wait(); !written) return std::move(written).error();
    for (const Copy& copy : copies) std::ranges::fill(bytes_of(copy), std::byte{0});
    if (auto read = peer_.read(copies).wait(); !read) return std::move(read).error();
    ByteVector expected(options_.size);
    for (const Copy& copy : copies) {
      Rng(kSeed + copy.local_offset).fill(expected);
      if (!std::equal(expected.begin(), expected.end(), bytes_of(copy).begin())) return false;
    }
    return true;
  }
  MutableBytes bytes_of(const Copy& copy) {
    return local_.bytes().subspan(copy.local_offset, copy.length_bytes);
  }

  Peer peer_;
  const Options options_;
  const std::uint64_t base_;
  const std::vector<Block> blocks_;
  std::vector<bool> seen_;  // by the first block of an operation
  std::size_t cursor_ = 0;
  Pages foreign_;  // outlives the region over it
  MemoryRegion local_;
  RemoteRegion remote_;
};

}  // namespace

Result<MemoryRegion> make_region(PeerAgent& agent, const Options& options, std::uint64_t bytes, Rights rights,
                                 Pages& foreign) {
  if (options.memory != "foreign") return agent.allocate(bytes, rights);
  auto pages = Pages::create(bytes);
  if (!pages) return std::move(pages).error();
  foreign = std::move(*pages);
  return agent.register_memory(foreign.data(), bytes, rights);
}

Result<std::unique_ptr<Load>> make_peer_load(PeerAgent& agent, Peer peer, const Options& options,
                                             std::uint32_t index) {
  if (options.bench == "bulk") return Bulk::create(agent, std::move(peer), options, index);
  return std::unique_ptr<Load>(new Calls(std::move(peer), options));
}

}  // namespace slime::bench
