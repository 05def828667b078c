#include "transport/sim/sim_wire.h"

#include <algorithm>
#include <cstring>

#include "base/str.h"

namespace slime::transport::sim {
namespace {

// Simulated time between two reports of a level-triggered event, so that time moves on while an
// engine leaves bytes unread.
constexpr Nanos kReportAgain = std::chrono::microseconds(1);

std::size_t total_bytes(std::span<const iovec> parts) {
  std::size_t total = 0;
  for (const iovec& part : parts) total += part.iov_len;
  return total;
}

}  // namespace

SimWire::SimWire(SimFabric& fabric, std::shared_ptr<SimFabric::Link> link, int side)
    : fabric_(fabric), link_(std::move(link)), side_(side) {
  link_->wires[static_cast<std::size_t>(side_)] = this;
}

SimWire::~SimWire() {
  *alive_ = false;
  fabric_.loop().cancel_timer(timer_);
  link_->wires[static_cast<std::size_t>(side_)] = nullptr;
  outgoing().ended = true;
  incoming().pieces.clear();
  incoming().bytes = 0;
  if (SimWire* peer = link_->wires[static_cast<std::size_t>(1 - side_)]) peer->arm();
}

void SimWire::start(WireHandler& handler) {
  handler_ = &handler;
  arm();
}

std::size_t SimWire::free_bytes() { return fabric_.options_.capacity_bytes - outgoing().bytes; }

std::size_t SimWire::torn(std::size_t possible) {
  if (!fabric_.options_.torn || possible <= 1) return possible;
  // Sometimes moves only a random part from the beginning, as sockets do.
  return fabric_.rng_.chance(3, 4) ? possible : 1 + fabric_.rng_.below(possible);
}

Result<std::size_t> SimWire::write(std::span<const iovec> parts) {
  if (link_->broken) return Status(Code::kUnavailable, "simulated link lost");
  auto& fail_in = link_->fail_write_in[static_cast<std::size_t>(side_)];
  if (fail_in && (*fail_in)-- == 0) {
    fail_in.reset();
    fabric_.break_link(link_->id);
    return Status(Code::kUnavailable, "simulated write failure");
  }
  if (link_->wires[static_cast<std::size_t>(1 - side_)] == nullptr) {
    return Status(Code::kUnavailable, "the simulated peer is gone");
  }
  std::size_t size = torn(std::min(free_bytes(), total_bytes(parts)));
  if (size == 0) return std::size_t{0};
  SimFabric::Link::Piece piece;
  const auto spread =
      static_cast<std::uint64_t>((fabric_.options_.max_delay - fabric_.options_.min_delay).count());
  piece.arrives = fabric_.clock_.now() + fabric_.options_.min_delay +
                  Nanos(static_cast<std::int64_t>(fabric_.rng_.below(spread + 1)));
  auto& stream = outgoing();
  if (!stream.pieces.empty()) piece.arrives = std::max(piece.arrives, stream.pieces.back().arrives);
  piece.bytes.reserve(size);
  for (const iovec& part : parts) {
    const auto* from = static_cast<const std::byte*>(part.iov_base);
    const std::size_t n = std::min(part.iov_len, size - piece.bytes.size());
    piece.bytes.insert(piece.bytes.end(), from, from + n);
  }
  stream.bytes += size;
  stream.pieces.push_back(std::move(piece));
  link_->wires[static_cast<std::size_t>(1 - side_)]->arm();
  return size;
}

Result<std::size_t> SimWire::read(std::span<const iovec> parts) {
  if (link_->broken) return Status(Code::kUnavailable, "simulated link lost");
  auto& stream = incoming();
  const TimePoint now = fabric_.clock_.now();
  if (stream.pieces.empty() && stream.ended) return Status(Code::kUnavailable, "end of the simulated stream");
  std::size_t left = torn(total_bytes(parts));
  std::size_t total = 0;
  for (const iovec& part : parts) {
    std::size_t filled = 0;
    while (filled < part.iov_len && left > 0 && !stream.pieces.empty() &&
           stream.pieces.front().arrives <= now) {
      auto& piece = stream.pieces.front();
      const std::size_t n = std::min({part.iov_len - filled, piece.bytes.size() - piece.taken, left});
      std::memcpy(static_cast<std::byte*>(part.iov_base) + filled, piece.bytes.data() + piece.taken, n);
      piece.taken += n;
      filled += n;
      left -= n;
      if (piece.taken == piece.bytes.size()) stream.pieces.pop_front();
    }
    total += filled;
    if (filled < part.iov_len) break;
  }
  stream.bytes -= total;
  if (total > 0) {
    if (SimWire* peer = link_->wires[static_cast<std::size_t>(1 - side_)]) peer->arm();
  }
  return total;
}

void SimWire::want_write(bool wanted) {
  want_write_ = wanted;
  arm();
}

bool SimWire::takes_long_messages() const { return fabric_.options_.long_messages; }

std::string SimWire::describe() const { return str("sim link ", link_->id, side_ == 0 ? " a" : " b"); }

void SimWire::arm() {
  if (handler_ == nullptr || link_->broken || link_->frozen[static_cast<std::size_t>(side_)]) return;
  const TimePoint now = fabric_.clock_.now();
  TimePoint when = kNever;
  const auto& in = incoming();
  if (!in.pieces.empty()) when = std::max(now, in.pieces.front().arrives);
  if (in.pieces.empty() && in.ended) when = now;
  if (want_write_ && free_bytes() > 0) when = now;
  if (when == kNever || (timer_ && timer_.when <= when)) return;
  fabric_.loop().cancel_timer(timer_);
  timer_ = fabric_.loop().add_timer(when, [this] { report(); });
}

void SimWire::report() {
  timer_ = TimerId{};
  if (link_->broken || link_->frozen[static_cast<std::size_t>(side_)]) return;
  const auto alive = alive_;  // the handler may destroy this wire
  const auto& in = incoming();
  const bool readable = in.pieces.empty() ? in.ended : in.pieces.front().arrives <= fabric_.clock_.now();
  if (readable) handler_->on_readable();
  if (!*alive || link_->broken) return;
  if (want_write_ && free_bytes() > 0) handler_->on_writable();
  if (!*alive || link_->broken || timer_) return;
  // Reports again a little later if bytes are unread, the end is unread, or there is room that the
  // engine wants.
  const bool again = (!in.pieces.empty() && in.pieces.front().arrives <= fabric_.clock_.now()) ||
                     (in.pieces.empty() && in.ended) || (want_write_ && free_bytes() > 0);
  if (again) {
    timer_ = fabric_.loop().add_timer(fabric_.clock_.now() + kReportAgain, [this] { report(); });
  } else {
    arm();
  }
}

void SimWire::break_now(const Status& reason) {
  fabric_.loop().cancel_timer(timer_);
  if (handler_ == nullptr) return;
  // Posts the call: the link may break inside a call of the engine, which must not be called back
  // from there.
  fabric_.loop().post([this, alive = alive_, reason] {
    if (*alive && handler_ != nullptr) handler_->on_broken(reason);
  });
}

}  // namespace slime::transport::sim
