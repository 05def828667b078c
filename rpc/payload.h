#pragma once

#include <memory>
#include <utility>
#include <variant>

#include "base/bytes.h"
#include "transport/endpoint.h"

namespace slime::rpc {

// The bytes of a request, a reply or a user message as they came in: a receive slot while it is small (held
// until this is destroyed or detached), an owned buffer when it was pulled by rendezvous or copied. Movable.
// Thread: any, one at a time.
class Payload {
 public:
  Payload() = default;
  explicit Payload(ByteVector owned) : owned_(std::move(owned)), bytes_(owned_) {}
  // `bytes` lie inside the message.
  Payload(transport::Message message, Bytes bytes) : message_(std::move(message)), bytes_(bytes) {}
  Payload(Payload&& other) noexcept { *this = std::move(other); }
  Payload& operator=(Payload&& other) noexcept {
    owned_ = std::move(other.owned_);  // a moved vector keeps its buffer, so bytes_ stays right
    message_ = std::move(other.message_);
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  // Copies out of the slot, if it is in one, and gives the slot back.
  void detach() {
    if (bytes_.data() == owned_.data()) return;
    owned_.assign(bytes_.begin(), bytes_.end());
    bytes_ = owned_;
    message_.release();
  }
  // Empties it; the slot, if any, goes back.
  void release() {
    bytes_ = {};
    owned_ = {};
    message_.release();
  }

 private:
  ByteVector owned_;
  transport::Message message_;
  Bytes bytes_;
};

}  // namespace slime::rpc
