#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "transport/sim/sim.h"
#include "transport/wire.h"

namespace slime::transport::sim {

// A link between two wires: two streams with delays, a capacity and faults.
struct SimFabric::Link {
  struct Piece {
    TimePoint arrives;
    ByteVector bytes;
    std::size_t taken = 0;
  };
  // The bytes of one direction. Stream i is written by side i and read by side 1 - i.
  struct Stream {
    std::deque<Piece> pieces;
    std::size_t bytes = 0;
    bool ended = false;  // the writer was destroyed; bytes in flight still arrive
  };
  std::uint64_t id = 0;
  std::array<Stream, 2> streams;
  std::array<SimWire*, 2> wires{};
  std::array<bool, 2> frozen{};
  std::array<std::optional<std::uint32_t>, 2> fail_write_in;
  bool broken = false;
};

// One end of a link. Its events are level triggered, like those of epoll: unread bytes are reported
// again.
class SimWire final : public Wire {
 public:
  SimWire(SimFabric& fabric, std::shared_ptr<SimFabric::Link> link, int side);
  ~SimWire() override;

  void start(WireHandler& handler) override;
  Result<std::size_t> write(std::span<const iovec> parts) override;
  Result<std::size_t> read(std::span<const iovec> parts) override;
  void want_write(bool wanted) override;
  void set_waiting(bool) override {}
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] bool takes_long_messages() const override;

  // Sets the timer for the next event: now, or when the next piece arrives.
  void arm();
  void break_now(const Status& reason);

 private:
  SimFabric::Link::Stream& incoming() { return link_->streams[static_cast<std::size_t>(1 - side_)]; }
  SimFabric::Link::Stream& outgoing() { return link_->streams[static_cast<std::size_t>(side_)]; }
  [[nodiscard]] std::size_t free_bytes();
  void report();
  std::size_t torn(std::size_t possible);

  SimFabric& fabric_;
  const std::shared_ptr<SimFabric::Link> link_;
  const int side_;
  WireHandler* handler_ = nullptr;
  bool want_write_ = false;
  TimerId timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace slime::transport::sim
