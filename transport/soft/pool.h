#pragma once

#include <memory>
#include <vector>

#include "transport/receive_pool.h"

namespace slime::transport::soft {

// A ReceivePool whose slots are in ordinary memory, each allocated at its first use.
class SoftPool final : public ReceivePool {
 public:
  SoftPool(std::shared_ptr<Loop> loop, const PortOptions& options)
      : ReceivePool(std::move(loop), options, options.base_credits) {}
  // Returns a slot for a message from the peer of `account`, which had a credit for it.
  ReceiveSlot& take_slot(CreditAccount& account);

 private:
  struct OwnedSlot {
    explicit OwnedSlot(std::uint32_t index, std::uint32_t bytes)
        : memory(std::make_unique_for_overwrite<std::byte[]>(bytes)), slot(index, memory.get()) {}
    const std::unique_ptr<std::byte[]> memory;
    ReceiveSlot slot;
  };
  void put_free(ReceiveSlot& slot) override { free_.push_back(&slot); }

  std::vector<std::unique_ptr<OwnedSlot>> slots_;
  std::vector<ReceiveSlot*> free_;
};

}  // namespace slime::transport::soft
