#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "rpc/payload.h"

namespace slime::rpc {

// The queue of messages that gets back deliveries which were not taken. Thread: any.
class DeliverySource {
 public:
  // Puts the message back into `queue`, in front of all messages with a higher number.
  virtual void give_back(std::uint64_t queue, std::uint64_t number, Payload&& message) noexcept = 0;

 protected:
  ~DeliverySource() = default;
};

// A received message that its user has not taken yet. If it is destroyed before take(), the message
// goes back to the front of its queue. Movable. Thread: any, one at a time.
class Delivery {
 public:
  Delivery() = default;
  Delivery(std::shared_ptr<DeliverySource> source, std::uint64_t queue, std::uint64_t number,
           Payload&& message)
      : source_(std::move(source)), queue_(queue), number_(number), message_(std::move(message)) {}
  Delivery(Delivery&&) noexcept = default;
  Delivery& operator=(Delivery&& other) noexcept {
    if (this != &other) {
      give_back();
      source_ = std::move(other.source_);
      queue_ = other.queue_;
      number_ = other.number_;
      message_ = std::move(other.message_);
    }
    return *this;
  }
  ~Delivery() { give_back(); }

  [[nodiscard]] Bytes bytes() const { return message_.bytes(); }
  // Takes the message, so that the destructor does not put it back.
  Payload take() {
    source_.reset();
    return std::move(message_);
  }

 private:
  void give_back() noexcept {
    if (auto source = std::move(source_)) source->give_back(queue_, number_, std::move(message_));
  }

  std::shared_ptr<DeliverySource> source_;  // null: taken
  std::uint64_t queue_ = 0;
  std::uint64_t number_ = 0;
  Payload message_;
};

}  // namespace slime::rpc
