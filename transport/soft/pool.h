#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "transport/receive_pool.h"

namespace slime::transport::soft {

class LongSlot;

// The free buffers of long messages of one port. Thread: any.
class LongBuffers {
 public:
  LongBuffers() = default;
  LongBuffers(const LongBuffers&) = delete;
  LongBuffers& operator=(const LongBuffers&) = delete;
  ~LongBuffers();

  // Returns a free buffer of so many slots; null: there is none.
  std::unique_ptr<LongSlot> take(std::uint32_t slots);
  // Keeps the buffer for reuse. Frees the oldest ones if more than kLongKeptBytes are kept.
  void give(std::unique_ptr<LongSlot> buffer) noexcept;
  [[nodiscard]] std::size_t kept_bytes();

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<LongSlot>> kept_ SLIME_GUARDED_BY(mutex_);  // the oldest first
  std::size_t bytes_ SLIME_GUARDED_BY(mutex_) = 0;
};

// A ReceivePool whose slots are in ordinary memory, each allocated at its first use. A long message
// has a buffer of its own, which stands for as many slots as it has bytes for: slots that are free
// give up their memory for it, so the memory of all together stays that of the pool's slots. Free
// buffers are kept beside (kLongKeptBytes). A buffer whose message was kept (Message::keep) is its
// holder's memory, and no longer the pool's.
class SoftPool final : public ReceivePool {
 public:
  SoftPool(std::shared_ptr<Loop> loop, const PortOptions& options);
  ~SoftPool() override;
  // Returns a slot for a message from the peer of `account`, which had a credit for it.
  ReceiveSlot& take_slot(CreditAccount& account);
  // Returns a buffer for a message that takes `slots` slots.
  ReceiveSlot& take_long(std::uint32_t slots, CreditAccount& account);
  // Called when a message keeps its buffer. Returns where the buffer goes when it is released; null
  // once the port has ended, and then nothing has changed.
  std::shared_ptr<LongBuffers> keep(LongSlot& buffer);
  // Returns the memory of slots and of buffers in use, counted in slots.
  [[nodiscard]] std::uint32_t slots_with_memory() const { return made_ + long_slots_; }

 private:
  struct OwnedSlot {
    explicit OwnedSlot(std::uint32_t index, std::uint32_t bytes)
        : memory(std::make_unique_for_overwrite<std::byte[]>(bytes)), slot(index, memory.get()) {}
    const std::unique_ptr<std::byte[]> memory;
    ReceiveSlot slot;
  };
  void put_free(ReceiveSlot& slot) override;
  void make_slot();
  void make_room(std::uint32_t slots);
  std::unique_ptr<LongSlot> end_use(LongSlot& buffer);

  std::vector<std::unique_ptr<OwnedSlot>> slots_;  // by index; null: without memory
  std::vector<std::uint32_t> unmade_;              // indexes of slots without memory
  std::vector<ReceiveSlot*> free_;
  std::uint32_t made_ = 0;                       // slots with memory
  std::uint32_t long_slots_ = 0;                 // slots that the buffers in long_ stand for
  std::vector<std::unique_ptr<LongSlot>> long_;  // buffers of messages that have not kept them
  const std::shared_ptr<LongBuffers> long_buffers_;
};

}  // namespace slime::transport::soft
