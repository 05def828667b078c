#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "rpc/attachment.h"
#include "rpc/limits.h"
#include "transport/endpoint.h"

namespace slime::rpc {

namespace detail {
// Take and give back memory that the process keeps (received.h). Null: no memory.
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

// Memory for incoming bytes. Not zeroed: pages of large memory exist only when they are written, or
// were kept, so announced bytes cost nothing before they arrive.
class Buffer {
 public:
  Buffer() = default;
  // data() is null if there is no memory.
  explicit Buffer(std::size_t size)
      : data_(size < limits::kReceivedBlockBytes ? static_cast<std::byte*>(std::malloc(size))
                                                 : detail::take_block(size),
              detail::FreeBuffer{size}) {}

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return data_ ? data_.get_deleter().size : 0; }

 private:
  std::unique_ptr<std::byte, detail::FreeBuffer> data_;
};

// Memory of a payload with attachments or of a large request, which has no receive slot.
struct Attached final : transport::Message::Slot {
  void release() noexcept override;  // destroys this object
  std::shared_ptr<void> place;       // Server::Place of a large request
  Buffer memory;
  Bytes body;  // inside `memory`
  Attachments attachments;
};

// The received bytes of a request, a reply or a user message: in a receive slot, which is held
// until the payload is destroyed or detached; or in own memory, without an allocation for short
// bytes. Moving may move the bytes. Thread: any, one at a time.
class Payload {
 public:
  // Most bytes that are stored inside the object.
  static constexpr std::size_t kInsideBytes = 96;

  Payload() = default;
  // Copies the bytes.
  explicit Payload(Bytes bytes) { copy(bytes); }
  explicit Payload(Buffer pulled) : pulled_(std::move(pulled)), bytes_(pulled_.data(), pulled_.size()) {}
  // Not inline: GCC 12 would warn of inside_, which no path reads then.
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
  // Returns null if the bytes came in one message. A received message has bytes: a slot without
  // bytes is an Attached.
  [[nodiscard]] Attached* attached() const {
    if (message_.slot() == nullptr || !message_.bytes().empty()) return nullptr;
    return static_cast<Attached*>(message_.slot());
  }
  // Drops the attachments and keeps the bytes.
  void drop_attachments() {
    if (!attachments().empty()) static_cast<Attached*>(message_.slot())->attachments.clear();
  }
  // Copies the bytes out of a receive slot, and gives the slot back.
  void detach() {
    if (message_.bytes().empty()) return;
    copy(bytes_);
    message_.release();
  }
  // Drops the bytes, and gives a receive slot back.
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
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
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
