#include "transport/verbs/side_channel.h"

#include <sys/socket.h>

#include <cstring>

#include "base/str.h"

namespace slime::transport::verbs {

std::optional<SideFrame> SideFrame::decode(Bytes bytes) {
  if (bytes.size() != sizeof(SideFrame)) return std::nullopt;
  SideFrame frame;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (frame.magic != kMagic) return std::nullopt;
  switch (frame.type) {
    case SideFrameType::kReady:
    case SideFrameType::kUnreached:
      if (frame.a != 0 || frame.b != 0) return std::nullopt;
      return frame;
    case SideFrameType::kStarved:
    case SideFrameType::kReturn:
      if (frame.a == 0 || frame.b != 0) return std::nullopt;
      return frame;
    case SideFrameType::kGoodbye:
      return frame;
  }
  return std::nullopt;
}

SideChannel::SideChannel(std::unique_ptr<Wire> wire, SideChannelHandler& handler)
    : wire_(std::move(wire)), handler_(handler) {
  wire_->start(*this);
}

void SideChannel::send(SideFrameType type, std::uint64_t a, std::uint64_t b) {
  if (broken_) return;
  const SideFrame frame{SideFrame::kMagic, type, a, b};
  const Bytes bytes = std::as_bytes(std::span(&frame, 1));
  out_.insert(out_.end(), bytes.begin(), bytes.end());
  flush();
}

void SideChannel::say_once(int socket, SideFrameType type) {
  const SideFrame frame{SideFrame::kMagic, type, 0, 0};
  [[maybe_unused]] const ssize_t sent = ::send(socket, &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Hands queued bytes to the kernel. Reports no error: when a wire breaks, the reading side finds
// that and reports it.
void SideChannel::flush() {
  while (!out_.empty()) {
    const iovec part{out_.data(), out_.size()};
    const Result<std::size_t> written = wire_->write(std::span(&part, 1));
    if (!written || *written == 0) break;
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(*written));
  }
  wire_->want_write(!out_.empty());
}

void SideChannel::on_writable() noexcept { flush(); }

void SideChannel::on_readable() noexcept {
  while (!broken_) {
    const iovec part{in_ + in_bytes_, sizeof in_ - in_bytes_};
    Result<std::size_t> got = wire_->read(std::span(&part, 1));
    if (!got) return break_with(std::move(got).error());
    if (*got == 0) return;
    in_bytes_ += *got;
    if (in_bytes_ < sizeof in_) continue;
    in_bytes_ = 0;
    const std::optional<SideFrame> frame = SideFrame::decode(in_);
    if (!frame) return break_with(Status(Code::kCorrupt, "an unknown frame on the side channel"));
    handler_.on_side_frame(*frame);
  }
}

void SideChannel::on_broken(Status reason) noexcept { break_with(std::move(reason)); }

void SideChannel::break_with(Status reason) {
  if (broken_) return;
  broken_ = true;
  handler_.on_side_broken(std::move(reason));
}

}  // namespace slime::transport::verbs
