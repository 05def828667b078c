#include "tests/transport/toy/toy_provider.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/str.h"
#include "transport/soft/device.h"
#include "transport/wire.h"

namespace slime::transport::toy {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;  // masked in one write

// Eight bytes at a time: under sanitizers, one at a time takes longer than a close waits.
void mask(std::span<std::byte> data, std::byte with) {
  std::uint64_t word;
  std::uint64_t masks;
  std::memset(&masks, std::to_integer<int>(with), sizeof masks);
  for (; data.size() >= sizeof word; data = data.subspan(sizeof word)) {
    std::memcpy(&word, data.data(), sizeof word);
    word ^= masks;
    std::memcpy(data.data(), &word, sizeof word);
  }
  for (std::byte& each : data) each ^= with;
}

class MaskedWire final : public Wire {
 public:
  MaskedWire(std::unique_ptr<Wire> socket, std::byte sent, std::byte received)
      : socket_(std::move(socket)), sent_(sent), received_(received) {}

  void start(WireHandler& handler) override { socket_->start(handler); }
  Result<std::size_t> write(std::span<const iovec> parts) override {
    masked_.clear();
    for (const iovec& part : parts) {
      const auto* from = static_cast<const std::byte*>(part.iov_base);
      const std::size_t length = std::min(part.iov_len, kMostBytes - masked_.size());
      masked_.insert(masked_.end(), from, from + length);
    }
    mask(masked_, sent_);
    const iovec all{masked_.data(), masked_.size()};
    return socket_->write({&all, 1});
  }
  Result<std::size_t> read(std::span<const iovec> parts) override {
    auto length = socket_->read(parts);
    std::size_t left = length ? *length : 0;
    for (const iovec& part : parts) {
      auto* const data = static_cast<std::byte*>(part.iov_base);
      const std::size_t here = std::min(left, part.iov_len);
      mask({data, here}, received_);
      left -= here;
    }
    return length;
  }
  void want_write(bool wanted) override { socket_->want_write(wanted); }
  [[nodiscard]] std::uint64_t backlog_bytes() const override { return socket_->backlog_bytes(); }
  void set_waiting(bool waiting) override { socket_->set_waiting(waiting); }
  [[nodiscard]] std::string describe() const override { return str("toy over ", socket_->describe()); }

 private:
  const std::unique_ptr<Wire> socket_;
  const std::byte sent_;
  const std::byte received_;
  std::vector<std::byte> masked_;
};

// Each side tells the other the mask of the bytes that it will send.
class ToyPending final : public soft::PendingWire {
 public:
  ToyPending(Loop& loop, Nanos outage) : loop_(loop), outage_(outage) { random_bytes({&mask_, 1}); }
  [[nodiscard]] ByteVector parameters() const override { return {mask_}; }
  Result<std::unique_ptr<Wire>> finish(Bytes peer_parameters, UniqueFd socket, const Introduction&) override {
    if (peer_parameters.size() != 1) return Status(Code::kCorrupt, "the peer's mask has a wrong size");
    auto wire = make_socket_wire(loop_, std::move(socket), outage_);
    if (!wire) return std::move(wire).error();
    return std::unique_ptr<Wire>(
        std::make_unique<MaskedWire>(std::move(*wire), mask_, peer_parameters.front()));
  }

 private:
  Loop& loop_;
  const Nanos outage_;
  std::byte mask_{};
};

Status check_groups(Bytes ours, std::string_view self_name, Bytes theirs, std::string_view peer_name) {
  if (std::ranges::equal(ours, theirs)) return {};
  return Status(Code::kUnavailable, str("'", peer_name, "' and '", self_name, "' are of different groups"));
}

constexpr ProviderTraits kTraits{.automatic = true, .fits = "same group", .check_hints = &check_groups};

class ToyProvider final : public Provider {
 public:
  explicit ToyProvider(std::uint8_t group) : group_{std::byte{group}} {}
  [[nodiscard]] std::string_view name() const override { return "toy"; }
  [[nodiscard]] const ProviderTraits& traits() const override { return kTraits; }
  [[nodiscard]] Status available() const override { return {}; }
  Result<std::unique_ptr<Device>> open_device() override {
    const auto make_factory = [](Loop& loop, const PortOptions& options) -> Result<soft::WireFactory> {
      return soft::WireFactory(
          [&loop, outage = options.outage_tolerated]() -> Result<std::unique_ptr<soft::PendingWire>> {
            return std::unique_ptr<soft::PendingWire>(std::make_unique<ToyPending>(loop, outage));
          });
    };
    return std::unique_ptr<Device>(std::make_unique<soft::SoftDevice>(make_factory, group_));
  }

 private:
  const ByteVector group_;
};

}  // namespace

std::unique_ptr<Provider> make_toy_provider(std::uint8_t group) {
  return std::make_unique<ToyProvider>(group);
}

ProviderEntry toy_entry(std::uint8_t group) {
  return {"toy", [group](const auto&) { return make_toy_provider(group); }};
}

}  // namespace slime::transport::toy
