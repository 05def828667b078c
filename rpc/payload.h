#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/copy.h"
#include "rpc/attachment.h"
#include "rpc/limits.h"
#include "transport/endpoint.h"

namespace slime::rpc {

namespace detail {
// Take a block from the memory that the process keeps (received.h), and give it back. take_block()
// returns null if there is no memory.
std::byte* take_block(std::size_t length_bytes);
void give_block(std::byte* block) noexcept;

struct FreeBuffer {
  void operator()(std::byte* data) const {
    if (size < limits::kReceivedBlockBytes) {
      std::free(data);
    } else {
      give_block(data);
    }
  }
  std::size_t size = 0;
};
}  // namespace detail

// Memory for incoming bytes. It is not zeroed, so pages of large memory are touched only when bytes
// are written: bytes that a peer only announces cost nothing.
class Buffer {
 public:
  Buffer() = default;
  // If no memory can be allocated, data() is null.
  explicit Buffer(std::size_t size)
      : data_(size < limits::kReceivedBlockBytes ? static_cast<std::byte*>(std::malloc(size))
                                                 : detail::take_block(size),
              detail::FreeBuffer{size}) {}

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return data_ ? data_.get_deleter().size : 0; }

 private:
  std::unique_ptr<std::byte, detail::FreeBuffer> data_;
};

// Memory of a payload that has attachments, of a large request, or of a body in a registered block
// or in a long message. It takes the role of the payload's receive slot.
struct Attached final : transport::Message::Slot {
  void release() noexcept override;    // destroys this object
  std::shared_ptr<void> place;         // Server::Place of a large request
  Buffer memory;                       // of the body; or
  std::shared_ptr<const void> keeper;  // owns the memory of the body; or
  transport::Message message;          // a long message, which has the body
  Bytes body;
  Attachments attachments;
};

// The received bytes of a request, a reply or a user message. The bytes are in a receive slot,
// which is held until the payload is destroyed or detached, or in memory of the payload; short
// bytes need no allocation. Moving the payload may move the bytes. Thread: any, one at a time.
class Payload {
 public:
  // Most bytes that are stored inside the object, without an allocation.
  static constexpr std::size_t kInsideBytes = 96;

  Payload() = default;
  // Copies the bytes.
  explicit Payload(Bytes bytes) { copy(bytes); }
  explicit Payload(Buffer pulled) : pulled_(std::move(pulled)), bytes_(pulled_.data(), pulled_.size()) {}
  // Defined in payload.cc: inlined, it would make GCC 12 warn that inside_ is uninitialized,
  // although no path reads it then.
  explicit Payload(std::unique_ptr<Attached> attached);
  // `bytes` are inside the message.
  Payload(transport::Message message, Bytes bytes) : message_(std::move(message)), bytes_(bytes) {}
  Payload(Payload&& other) noexcept { take(other); }
  Payload& operator=(Payload&& other) noexcept {
    if (this != &other) {
      message_.release();
      take(other);
    }
    return *this;
  }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  // Returns the attachments.
  [[nodiscard]] std::span<const Attachment> attachments() const {
    const Attached* const attached = this->attached();
    return attached != nullptr ? std::span<const Attachment>(attached->attachments)
                               : std::span<const Attachment>();
  }
  // Returns the memory of a payload with attachments, of a large request or of a body in a block;
  // null if the bytes arrived in one message. A slot without message bytes is an Attached, because
  // a received message has bytes.
  [[nodiscard]] Attached* attached() const {
    if (message_.slot() == nullptr || !message_.bytes().empty()) return nullptr;
    return static_cast<Attached*>(message_.slot());
  }
  // Drops the attachments and keeps the bytes.
  void drop_attachments() {
    if (!attachments().empty()) static_cast<Attached*>(message_.slot())->attachments.clear();
  }
  // If the bytes are in a receive slot, copies them into memory of the payload and gives the slot
  // back.
  void detach() {
    if (message_.bytes().empty()) return;
    copy(bytes_);
    message_.release();
  }
  // Drops the bytes, and gives the receive slot back if they are in one.
  void release() {
    bytes_ = {};
    pulled_ = {};
    message_.release();
  }

 private:
  void copy(Bytes bytes) {
    if (bytes.size() > kInsideBytes) pulled_ = Buffer(bytes.size());
    std::byte* const to = bytes.size() > kInsideBytes ? pulled_.data() : inside_.data();
    SLIME_CHECK(to != nullptr);
    if (!bytes.empty()) copy_bytes(to, bytes.data(), bytes.size());
    bytes_ = {to, bytes.size()};
  }
  void take(Payload& other) noexcept {
    pulled_ = std::move(other.pulled_);
    message_ = std::move(other.message_);
    bytes_ = std::exchange(other.bytes_, {});
    if (bytes_.data() != other.inside_.data()) return;
    inside_ = other.inside_;
    bytes_ = {inside_.data(), bytes_.size()};
  }

  Buffer pulled_;
  transport::Message message_;
  Bytes bytes_;
  alignas(8) std::array<std::byte, kInsideBytes> inside_;  // initialized as far as bytes_ uses it
};

}  // namespace slime::rpc
