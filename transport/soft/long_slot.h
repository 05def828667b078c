#pragma once

#include <memory>
#include <utility>

#include "transport/soft/pool.h"

namespace slime::transport::soft {

// The buffer of a long message. Owned by the LongBuffers while it is free, by the SoftPool while a
// message has it, and by the message itself once that has kept it.
class LongSlot final : public ReceiveSlot {
 public:
  LongSlot(std::unique_ptr<std::byte[]> memory, std::uint32_t slots, std::size_t bytes)
      : ReceiveSlot(0, memory.get(), slots), memory_(std::move(memory)), bytes_(bytes) {}
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Makes the buffer that of a message which `pool` hands out.
  void belong_to(SoftPool& pool) { pool_ = &pool; }
  void release() noexcept override {
    if (home_ == nullptr) return ReceiveSlot::release();
    const std::shared_ptr<LongBuffers> home = std::move(home_);
    home->give(std::unique_ptr<LongSlot>(this));
  }
  bool keep() noexcept override {
    if (home_ == nullptr) home_ = pool_->keep(*this);
    return home_ != nullptr;
  }

 private:
  const std::unique_ptr<std::byte[]> memory_;
  const std::size_t bytes_;
  SoftPool* pool_ = nullptr;
  std::shared_ptr<LongBuffers> home_;  // not null: the message has kept the buffer
};

}  // namespace slime::transport::soft
