// A client without an agent: calls over a Channel, one-sided operations on its endpoint.
#include <algorithm>
#include <vector>

#include "base/str.h"
#include "bench/direct.h"
#include "bench/load.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

// An operation in flight; reused for the next operation.
struct Slot final : transport::Operation {
  void complete(Status outcome) noexcept override {
    status = std::move(outcome);
    done = true;
  }
  // Drives the loop until the operation has ended.
  Status wait(transport::Loop& loop) {
    if (!done) loop.wait_until([this] { return done; }, kNever);
    return std::move(status);
  }
  Status status;
  bool done = false;
};

Result<std::unique_ptr<Direct>> connect_direct(const Options& options, const std::string& address,
                                               std::uint32_t index) {
  auto direct = Direct::create(options, str("bench-client-", index),
                               std::max<std::uint64_t>(region_bytes(options), 4096));
  if (!direct) return std::move(direct).error();
  SLIME_TRY((*direct)->connect(address));
  return direct;
}

class ChannelFace final : public Face {
 public:
  ChannelFace(std::unique_ptr<Direct> direct, const Options& options)
      : options_(options), direct_(std::move(direct)), slots_(options.inflight), replies_(options.inflight) {}

  [[nodiscard]] std::string provider() const override { return options_.provider; }
  [[nodiscard]] transport::EndpointCounters counters() const override {
    return direct_->channel().endpoint().counters();
  }

  Status call(std::uint32_t slot, const ByteVector& payload) override {
    slots_[slot].done = false;
    direct_->channel().call({.service = "bench", .method = "echo"}, rpc::encode_arguments(payload),
                            [this, slot](Result<rpc::Payload> reply) {
                              if (reply) replies_[slot] = std::move(*reply);
                              slots_[slot].complete(reply.status());
                            });
    return {};
  }
  Status move(std::uint32_t slot, std::size_t first, std::size_t count, bool write) override {
    slots_[slot].done = false;
    const auto copies = std::span<const transport::CopyBlock>(copies_).subspan(first, count);
    transport::Endpoint& endpoint = direct_->channel().endpoint();
    return write ? endpoint.write(copies, slots_[slot]) : endpoint.read(copies, slots_[slot]);
  }
  Status finish(std::uint32_t slot) override { return slots_[slot].wait(direct_->loop()); }
  bool brought_back(std::uint32_t slot, const ByteVector& payload) override {
    const auto value = rpc::decode_value<ByteVector>(replies_[slot].bytes());
    return value && same_bytes(*value, payload);
  }

  Status use_blocks(std::span<const Block> blocks, std::uint64_t base) override {
    auto remote = direct_->peer_region();
    if (!remote) return std::move(remote).error();
    remote_ = *remote;
    for (const Block& block : blocks)
      copies_.push_back({&direct_->region(), block.local, &remote_, base + block.remote, options_.size});
    return {};
  }
  [[nodiscard]] MutableBytes memory() const override { return direct_->region().bytes(); }

 private:
  const Options options_;
  const std::unique_ptr<Direct> direct_;
  std::vector<Slot> slots_;
  std::vector<rpc::Payload> replies_;
  transport::RemoteRegion remote_;
  std::vector<transport::CopyBlock> copies_;  // one for each block
};

// A write with an immediate, answered by another.
class Notify final : public Load {
 public:
  Notify(const Options& options, std::unique_ptr<Direct> direct, const transport::RemoteRegion& remote)
      : Load(1, false), direct_(std::move(direct)), remote_(remote) {
    copy_ = {&direct_->region(), 0, &remote_, 0, options.size};
    direct_->on_imm([this](std::uint32_t imm) {
      answer_.done = true;
      right_ = imm == sent_;
    });
  }

 private:
  Status start(std::uint32_t) override {
    answer_.done = false;
    return direct_->notify(copy_, ++sent_);
  }
  Status finish(std::uint32_t) override { return answer_.wait(direct_->loop()); }
  bool check(std::uint32_t) override { return right_; }
  [[nodiscard]] transport::EndpointCounters counters() const override {
    return direct_->channel().endpoint().counters();
  }

  const std::unique_ptr<Direct> direct_;
  const transport::RemoteRegion remote_;
  transport::CopyBlock copy_;
  Slot answer_;
  std::uint32_t sent_ = 0;
  bool right_ = true;
};

}  // namespace

Result<std::unique_ptr<Face>> make_channel_face(const Options& options, const std::string& address,
                                                std::uint32_t index) {
  auto direct = connect_direct(options, address, index);
  if (!direct) return std::move(direct).error();
  return std::unique_ptr<Face>(new ChannelFace(std::move(*direct), options));
}

Result<LoadClient> make_notify_load(const Options& options, const std::string& address) {
  auto direct = connect_direct(options, address, 0);
  if (!direct) return std::move(direct).error();
  auto remote = (*direct)->peer_region();
  if (!remote) return std::move(remote).error();
  return LoadClient{std::make_unique<Notify>(options, std::move(*direct), *remote), options.provider};
}

}  // namespace slime::bench
