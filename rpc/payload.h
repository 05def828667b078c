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
// Memory of the process's own that is kept for the next (received.h). Null: there is none.
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

// Memory for bytes that are about to come in. Not zeroed: pages of a large one exist only once they are
// written, or have been kept, so what a peer announces costs nothing until it arrives.
class Buffer {
 public:
  Buffer() = default;
  // data() is null when there is no memory.
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
  void release() noexcept override;  // destroys it; elsewhere, so that payloads without one stay small
  std::shared_ptr<void> place;       // Server::Place of a large request
  Buffer memory;
  Bytes body;  // inside
  Attachments attachments;
};

// The bytes of a request, a reply or a user message as they came in: a receive slot (held until this is
// destroyed or detached), else memory of its own, which short ones need no allocation for. Movable, which may
// move the bytes. Thread: any, one at a time.
class Payload {
 public:
  // What lies inside the object when it is copied.
  static constexpr std::size_t kInsideBytes = 96;

  Payload() = default;
  // A copy.
  explicit Payload(Bytes bytes) { copy(bytes); }
  explicit Payload(Buffer pulled) : pulled_(std::move(pulled)), bytes_(pulled_.data(), pulled_.size()) {}
  explicit Payload(std::unique_ptr<Attached> attached)
      : message_({}, attached.get()), bytes_(attached->body) {
    static_cast<void>(attached.release());
  }
  // `bytes` lie inside the message.
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
  // What came beside the bytes. A message that is received has bytes: a slot without any is an Attached.
  [[nodiscard]] std::span<const Attachment> attachments() const {
    const Attached* const attached = this->attached();
    return attached != nullptr ? std::span<const Attachment>(attached->attachments)
                               : std::span<const Attachment>();
  }
  // Null if the bytes came in one message.
  [[nodiscard]] Attached* attached() const {
    if (message_.slot() == nullptr || !message_.bytes().empty()) return nullptr;
    return static_cast<Attached*>(message_.slot());
  }
  // The bytes stay.
  void drop_attachments() {
    if (!attachments().empty()) static_cast<Attached*>(message_.slot())->attachments.clear();
  }
  // Copies out of the slot, if it is in one, and gives the slot back.
  void detach() {
    if (message_.bytes().empty()) return;
    copy(bytes_);
    message_.release();
  }
  // Empties it; the slot, if any, goes back.
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
  alignas(8) std::array<std::byte, kInsideBytes> inside_;  // uninitialized but for bytes_
};

}  // namespace slime::rpc
