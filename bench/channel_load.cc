// Loads without an agent: calls over a Channel, one-sided operations on its endpoint.
#include <algorithm>
#include <optional>
#include <vector>

#include "base/random.h"
#include "base/str.h"
#include "bench/direct.h"
#include "bench/load.h"
#include "bench/process.h"
#include "bench/raw_copy.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

// An operation in flight; reused for the next operation.
struct Slot final : transport::Operation {
  void complete(Status outcome) noexcept override {
    status = std::move(outcome);
    done = true;
  }
  Status status;
  bool done = false;
};

class ChannelLoad : public Load {
 public:
  // `checks`: check() takes time, which does not count.
  ChannelLoad(const Options& options, std::unique_ptr<Direct> direct, std::uint32_t slots, bool checks)
      : options_(options), direct_(std::move(direct)), slots_(slots), checks_(checks) {}

  Status run(Nanos span, Outcome& out) final {
    const transport::EndpointCounters before = endpoint().counters();
    const auto begin = [this](std::uint32_t i) {
      slots_[i].done = false;
      return start(i);
    };
    const auto finish = [this](std::uint32_t i) {
      Slot& slot = slots_[i];
      if (!slot.done) direct_->loop().wait_until([&slot] { return slot.done; }, kNever);
      return std::move(slot.status);
    };
    SLIME_TRY(keep_under_way(static_cast<std::uint32_t>(slots_.size()), span, out, checks_, begin, finish,
                             [this](std::uint32_t i) { return check(i); }));
    const transport::EndpointCounters after = endpoint().counters();
    out.device.work_requests = after.work_requests - before.work_requests;
    out.device.doorbells = after.doorbells - before.doorbells;
    out.device.completions = after.completions - before.completions;
    out.device.coalesced = after.coalesced - before.coalesced;
    return {};
  }

 protected:
  virtual Status start(std::uint32_t i) = 0;
  virtual bool check(std::uint32_t) { return true; }

  [[nodiscard]] transport::Endpoint& endpoint() { return direct_->channel().endpoint(); }
  [[nodiscard]] Direct& direct() { return *direct_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] Slot& slot(std::uint32_t i) { return slots_[i]; }
  // Transfers one range, and waits for it.
  Status transfer(const transport::CopyBlock& copy, bool write) {
    Slot one;
    const std::span<const transport::CopyBlock> copies(&copy, 1);
    SLIME_TRY(write ? endpoint().write(copies, one) : endpoint().read(copies, one));
    direct_->loop().wait_until([&one] { return one.done; }, kNever);
    return std::move(one.status);
  }

 private:
  const Options options_;
  const std::unique_ptr<Direct> direct_;
  std::vector<Slot> slots_;
  const bool checks_;
};

class CallLoad final : public ChannelLoad {
 public:
  CallLoad(const Options& options, std::unique_ptr<Direct> direct)
      : ChannelLoad(options, std::move(direct), options.inflight, true),
        payloads_(options.inflight, ByteVector(options.size)),
        replies_(options.inflight) {
    for (std::uint32_t i = 0; i < options.inflight; ++i) Rng(kSeed + i).fill(payloads_[i]);
  }

 private:
  Status start(std::uint32_t i) override {
    direct().channel().call({.service = "bench", .method = "echo"}, rpc::encode_arguments(payloads_[i]),
                            [this, i](Result<rpc::Payload> reply) {
                              if (reply) replies_[i] = std::move(*reply);
                              slot(i).complete(reply.status());
                            });
    return {};
  }
  bool check(std::uint32_t i) override {
    const auto value = rpc::decode_value<ByteVector>(replies_[i].bytes());
    return value && same_bytes(*value, payloads_[i]);
  }

  std::vector<ByteVector> payloads_;
  std::vector<rpc::Payload> replies_;
};

// Blocks in and out of the client's own part of the server's region, `count` in an operation.
class BlockLoad : public ChannelLoad {
 public:
  BlockLoad(const Options& options, std::unique_ptr<Direct> direct, const transport::RemoteRegion& remote,
            std::uint32_t index)
      : ChannelLoad(options, std::move(direct), options.inflight, false),
        remote_(remote),
        base_(index * region_bytes(options)),
        batches_(options.inflight) {
    Rng(kSeed + 1).fill(this->direct().region().bytes());  // zeros move faster (Pages::create)
    const std::vector<Block> blocks = block_list(options);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      batches_[i / options.count].push_back(
          {&this->direct().region(), blocks[i].local, &remote_, base_ + blocks[i].remote, options.size});
    }
  }

  // Compares reads with the server's bytes. For writes, writes new bytes, reads them back and
  // compares.
  Result<bool> verify() override {
    const std::uint64_t bytes = region_bytes(options());
    transport::DeviceRegion& local = direct().region();
    const transport::CopyBlock whole{&local, 0, &remote_, base_, bytes};
    ByteVector expected(bytes);
    if (options().operation == "read") {
      ByteVector all(bytes * options().clients);
      Rng(kSeed).fill(all);
      for (const auto& batch : batches_) {
        for (const transport::CopyBlock& copy : batch) {
          const std::byte* const there = all.data() + copy.remote_offset;
          if (!std::equal(there, there + copy.length_bytes, local.data() + copy.local_offset)) return false;
        }
      }
      return true;
    }
    Rng(kSeed + 1000 + base_).fill(expected);
    std::copy(expected.begin(), expected.end(), local.data());
    SLIME_TRY(write_all());
    std::fill(local.bytes().begin(), local.bytes().end(), std::byte{0});
    SLIME_TRY(transfer(whole, false));
    for (const auto& batch : batches_) {
      for (const transport::CopyBlock& copy : batch) {
        const std::byte* const sent = expected.data() + copy.local_offset;
        if (!std::equal(sent, sent + copy.length_bytes, local.data() + copy.local_offset)) return false;
      }
    }
    return true;
  }

 private:
  Status start(std::uint32_t i) override {
    return options().operation == "write" ? endpoint().write(batches_[i], slot(i))
                                          : endpoint().read(batches_[i], slot(i));
  }
  Status write_all() {
    for (const auto& batch : batches_) {
      for (const transport::CopyBlock& copy : batch) SLIME_TRY(transfer(copy, true));
    }
    return {};
  }

  const transport::RemoteRegion remote_;
  const std::uint64_t base_;
  std::vector<std::vector<transport::CopyBlock>> batches_;
};

// A write with an immediate, answered by another.
class NotifyLoad final : public ChannelLoad {
 public:
  NotifyLoad(const Options& options, std::unique_ptr<Direct> direct, const transport::RemoteRegion& remote)
      : ChannelLoad(options, std::move(direct), 1, false), remote_(remote) {
    copy_ = {&this->direct().region(), 0, &remote_, 0, options.size};
    this->direct().on_imm([this](std::uint32_t imm) {
      slot(0).done = true;
      right_ = imm == sent_;
    });
  }

 private:
  Status start(std::uint32_t) override { return direct().notify(copy_, ++sent_); }
  bool check(std::uint32_t) override { return right_; }

  const transport::RemoteRegion remote_;
  transport::CopyBlock copy_;
  std::uint32_t sent_ = 0;
  bool right_ = true;
};

}  // namespace

Result<std::unique_ptr<Load>> make_channel_load(const Options& options, const std::string& address,
                                                std::uint32_t index) {
  auto direct = Direct::create(options, str("bench-client-", index),
                               std::max<std::uint64_t>(region_bytes(options), 4096));
  if (!direct) return std::move(direct).error();
  SLIME_TRY((*direct)->connect(address));
  if (options.bench == "rpc") return std::unique_ptr<Load>(new CallLoad(options, std::move(*direct)));
  auto remote = (*direct)->peer_region();
  if (!remote) return std::move(remote).error();
  if (options.bench == "notify")
    return std::unique_ptr<Load>(new NotifyLoad(options, std::move(*direct), *remote));
  return std::unique_ptr<Load>(new BlockLoad(options, std::move(*direct), *remote, index));
}

}  // namespace slime::bench
