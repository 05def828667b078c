#include "bench/load.h"

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {

Status Load::run(Nanos span, Outcome& out) {
  std::vector<TimePoint> started(slots_);
  const transport::EndpointCounters counters_before = counters();
  const double cpu_before = cpu_seconds();
  const std::uint64_t faults_before = page_faults();
  const TimePoint begin = steady_clock().now();
  for (std::uint32_t i = 0; i < slots_; ++i) {
    started[i] = begin;
    SLIME_TRY(start(i));
  }
  TimePoint now = begin;
  std::uint32_t live = slots_;
  std::uint64_t begun = slots_;
  for (std::uint32_t i = 0; live > 0; i = i + 1 == slots_ ? 0 : i + 1) {
    if (started[i] == TimePoint{}) continue;
    SLIME_TRY(finish(i));
    now = steady_clock().now();
    out.latency.add(static_cast<std::uint64_t>((now - started[i]).count()));
    ++out.operations;
    out.verified = check(i) && out.verified;
    const bool more = stop_after_ == 0 ? now - begin < span : begun < stop_after_;
    if (more && !interrupted()) {
      ++begun;
      started[i] = checks_ ? steady_clock().now() : now;
      SLIME_TRY(start(i));
    } else {
      started[i] = {};
      --live;
    }
  }
  out.seconds = std::chrono::duration<double>(now - begin).count();
  out.cpu = cpu_seconds() - cpu_before;
  out.faults = page_faults() - faults_before;
  const transport::EndpointCounters counters_after = counters();
  out.device.work_requests = counters_after.work_requests - counters_before.work_requests;
  out.device.doorbells = counters_after.doorbells - counters_before.doorbells;
  out.device.completions = counters_after.completions - counters_before.completions;
  return {};
}

namespace {

// Blocks in the client's own part of the server's region; cold ones in the whole region.
class Blocks final : public Load {
 public:
  Blocks(std::unique_ptr<Face> face, const Options& options, std::uint32_t index)
      : Load(options.inflight, false),
        face_(std::move(face)),
        options_(options),
        base_(index * region_bytes(options)),
        blocks_(block_list(options)) {}
  Status prepare() {
    SLIME_TRY(face_->use_blocks(blocks_, base_));
    Rng(kSeed + 1).fill(face_->memory());  // zeros move faster (Pages::create)
    return {};
  }

  // Moves each cold block once, for as long as that takes.
  Status warm_up(Nanos span) override {
    SLIME_TRY(Load::warm_up(span));
    if (!options_.cold) return {};
    for (std::size_t done = 0; done < blocks_.size() && !interrupted(); done += slots() * options_.count) {
      for (std::uint32_t i = 0; i < slots(); ++i) SLIME_TRY(start(i));
      for (std::uint32_t i = 0; i < slots(); ++i) SLIME_TRY(finish(i));
    }
    return {};
  }

  Status run(Nanos span, Outcome& out) override {
    seen_.assign(blocks_.size(), false);
    SLIME_TRY(Load::run(span, out));
    if (!options_.cold) return {};
    out.blocks = out.operations * options_.count;
    out.distinct = static_cast<std::uint64_t>(std::count(seen_.begin(), seen_.end(), true)) * options_.count;
    return {};
  }

  // Compares reads of hot blocks with the server's bytes. Otherwise writes new bytes, reads them
  // back and compares: all hot blocks, or the next cold operation.
  Result<bool> verify() override {
    if (options_.cold) {
      const std::size_t first = next();
      return verify_written(first, first + options_.count);
    }
    if (options_.operation == "write" || options_.dual) return verify_written(0, blocks_.size());
    ByteVector all(region_bytes(options_) * options_.clients);
    Rng(kSeed).fill(all);
    return std::ranges::all_of(blocks_, [&](const Block& block) {
      return same_bytes(bytes_of(block), Bytes(all).subspan(base_ + block.remote, options_.size));
    });
  }

 private:
  Status start(std::uint32_t slot) override {
    const std::size_t first = options_.cold ? next() : std::size_t{slot} * options_.count;
    seen_[first] = true;
    const bool back = options_.dual && slot % 2 == 1;
    return face_->move(slot, first, options_.count, (options_.operation == "write") != back);
  }
  Status finish(std::uint32_t slot) override { return face_->finish(slot); }
  [[nodiscard]] transport::EndpointCounters counters() const override { return face_->counters(); }

  // Returns the first block of the next operation; the list repeats.
  std::size_t next() {
    const std::size_t out = cursor_;
    cursor_ = cursor_ + options_.count < blocks_.size() ? cursor_ + options_.count : 0;
    return out;
  }
  [[nodiscard]] MutableBytes bytes_of(const Block& block) const {
    return face_->memory().subspan(block.local, options_.size);
  }

  Result<bool> verify_written(std::size_t first, std::size_t end) {
    const auto blocks = std::span(blocks_).subspan(first, end - first);
    const auto generator = [this](const Block& block) { return Rng(kSeed + 1000 + base_ + block.local); };
    for (const Block& block : blocks) generator(block).fill(bytes_of(block));
    SLIME_TRY(move_all(first, end, true));
    for (const Block& block : blocks) std::ranges::fill(bytes_of(block), std::byte{0});
    SLIME_TRY(move_all(first, end, false));
    ByteVector expected(options_.size);
    for (const Block& block : blocks) {
      generator(block).fill(expected);
      if (!same_bytes(bytes_of(block), expected)) return false;
    }
    return true;
  }
  Status move_all(std::size_t first, std::size_t end, bool write) {
    for (; first < end; first += options_.count) {
      SLIME_TRY(face_->move(0, first, options_.count, write));
      SLIME_TRY(face_->finish(0));
    }
    return {};
  }

  const std::unique_ptr<Face> face_;
  const Options options_;
  const std::uint64_t base_;
  const std::vector<Block> blocks_;
  std::vector<bool> seen_;  // by the first block of an operation
  std::size_t cursor_ = 0;
};

Result<std::unique_ptr<Face>> make_face(const Options& options, const std::string& address,
                                        std::uint32_t index) {
  if (options.face == "channel") return make_channel_face(options, address, index);
  auto connection = connect_agent(options, address, index);
  if (!connection) return std::move(connection).error();
  return make_peer_face(options, *connection);
}

}  // namespace

Result<LoadClient> make_block_load(const Options& options, const std::string& address, std::uint32_t index) {
  auto face = make_face(options, address, index);
  if (!face) return std::move(face).error();
  const std::string provider = (*face)->provider();
  auto blocks = std::make_unique<Blocks>(std::move(*face), options, index);
  SLIME_TRY(blocks->prepare());
  return LoadClient{std::move(blocks), provider};
}

}  // namespace slime::bench
