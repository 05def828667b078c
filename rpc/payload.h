#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "transport/endpoint.h"

namespace slime::rpc {

// Memory for bytes that are about to come in. Not zeroed: pages of a large one exist only once they are
// written, so what a peer announces costs nothing until it arrives.
class Buffer {
 public:
  Buffer() = default;
  // data() is null when there is no memory.
  explicit Buffer(std::size_t size) : data_(static_cast<std::byte*>(std::malloc(size))), size_(size) {}

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return data_ ? size_ : 0; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

// The bytes of a request, a reply or a user message as they came in: a receive slot while it is small (held
// until this is destroyed or detached), an owned buffer when it was pulled by rendezvous or copied. Movable.
// Thread: any, one at a time.
class Payload {
 public:
  Payload() = default;
  explicit Payload(ByteVector owned) : owned_(std::move(owned)), bytes_(owned_) {}
  explicit Payload(Buffer pulled) : pulled_(std::move(pulled)), bytes_(pulled_.data(), pulled_.size()) {}
  // `bytes` lie inside the message.
  Payload(transport::Message message, Bytes bytes) : message_(std::move(message)), bytes_(bytes) {}
  Payload(Payload&& other) noexcept
      : owned_(std::move(other.owned_)),
        pulled_(std::move(other.pulled_)),
        message_(std::move(other.message_)),
        bytes_(std::exchange(other.bytes_, {})) {}
  Payload& operator=(Payload&& other) noexcept {
    owned_ = std::move(other.owned_);  // a moved vector keeps its buffer, so bytes_ stays right
    pulled_ = std::move(other.pulled_);
    message_ = std::move(other.message_);
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  // Copies out of the slot, if it is in one, and gives the slot back.
  void detach() {
    if (message_.bytes().empty()) return;
    owned_.assign(bytes_.begin(), bytes_.end());
    bytes_ = owned_;
    message_.release();
  }
  // Empties it; the slot, if any, goes back.
  void release() {
    bytes_ = {};
    owned_ = {};
    pulled_ = {};
    message_.release();
  }

 private:
  ByteVector owned_;
  Buffer pulled_;
  transport::Message message_;
  Bytes bytes_;
};

}  // namespace slime::rpc
