#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "transport/endpoint.h"
#include "transport/loop.h"
#include "transport/provider.h"

namespace slime::transport {

class ReceivePool;

// Owner of a CreditAccount: its on_slot_free() is called when a slot of the account is free again.
// Thread: the loop.
class CreditOwner {
 public:
  virtual void on_slot_free() noexcept = 0;

 protected:
  ~CreditOwner() = default;
};

// Counts the receive slots that one endpoint has promised to its peer. Lives until the endpoint has
// closed the account and released its last message; the pool keeps the account alive until then.
struct CreditAccount final : std::enable_shared_from_this<CreditAccount> {
  CreditOwner* owner = nullptr;  // null once the endpoint is gone
  // slots that the peer may fill, and filled slots that are not released yet
  std::uint32_t promised = 0;
  std::uint32_t held = 0;  // of these, filled
};

// One receive slot, or a buffer that stands for several slots of a long message. The pool owns its
// memory.
class ReceiveSlot : public Message::Slot {
 public:
  ReceiveSlot(std::uint32_t index, std::byte* memory, std::uint32_t slots = 1)
      : index_(index), slots_(slots), memory_(memory) {}
  ReceiveSlot(const ReceiveSlot&) = delete;
  ReceiveSlot& operator=(const ReceiveSlot&) = delete;
  virtual ~ReceiveSlot() = default;
  void release() noexcept override;
  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] std::byte* memory() const { return memory_; }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }

 private:
  friend class ReceivePool;
  const std::uint32_t index_;
  const std::uint32_t slots_;
  std::byte* const memory_;
  // account of the message in the slot; null while no message holds the slot
  CreditAccount* account_ = nullptr;
  ReceivePool* pool_ = nullptr;
};

// The receive slots that the endpoints of one port share. All accounts together never reserve more
// slots than the pool has, so a message that had a credit always finds a slot. An account reserves
// at least the floor (a fixed number of slots) while its endpoint lives. The pool outlives its port
// while messages are held. Thread: the loop, except release().
class ReceivePool : public std::enable_shared_from_this<ReceivePool> {
 public:
  // `floor`: the slots that each account keeps.
  ReceivePool(std::shared_ptr<Loop> loop, const PortOptions& options, std::uint32_t floor)
      : options_(options),
        floor_(floor),
        home_(loop.get()),
        loop_(std::move(loop)),
        unreserved_(options.pool_slots) {}
  virtual ~ReceivePool() = default;

  [[nodiscard]] const PortOptions& options() const { return options_; }
  [[nodiscard]] std::uint32_t unreserved() const { return unreserved_; }

  // Reserves the floor (the slots that each account keeps) for `account`, and promises these slots.
  // Returns false if the pool has too few.
  bool open(CreditAccount& account);
  // Call when the account's endpoint, or the attempt to make the endpoint, has ended. Slots of held
  // messages stay taken.
  void close(CreditAccount& account);
  // Promises one more slot to the account's peer. Slots of the floor are always available. Further
  // slots come from the unreserved ones, and an account never takes more of these than it leaves
  // for the others. Returns false if there is none.
  bool promise(CreditAccount& account);
  void take_back(CreditAccount& account, std::uint32_t promises);

  // Marks a slot as filled by the peer of `account`. The peer must have had a credit for it.
  void hand_out(ReceiveSlot& slot, CreditAccount& account) {
    SLIME_CHECK(account.held + slot.slots_ <= account.promised);
    account.held += slot.slots_;
    ++out_;
    slot.account_ = &account;
    slot.pool_ = this;
  }
  // Puts back a slot that was handed out: its message has been released, or was never made.
  void recycle(ReceiveSlot& slot);
  // Any thread.
  void release(ReceiveSlot& slot);
  // Ends the account of a slot that was handed out, and that its holder keeps as memory of its own.
  // Returns false, and does nothing, once the port has ended.
  bool let_go(ReceiveSlot& slot);
  // Call when the port ends: slots that are released later are no longer used again.
  void shut();

 protected:
  // Called with a slot that is free and may be filled again.
  virtual void put_free(ReceiveSlot& slot) = 0;

 private:
  void run_released();
  void settle(CreditAccount& account, std::uint32_t slots);

  const PortOptions options_;
  const std::uint32_t floor_;
  const Loop* const home_;  // only for comparison
  std::atomic<bool> shut_{false};
  std::shared_ptr<Loop> loop_ SLIME_GUARDED_BY(mutex_);  // null once shut
  std::uint32_t unreserved_;
  std::uint32_t out_ = 0;                               // slots handed out; mutex_ guards it after shut()
  std::vector<std::shared_ptr<CreditAccount>> closed_;  // accounts with messages that are still held

  Mutex mutex_;
  std::vector<ReceiveSlot*> released_ SLIME_GUARDED_BY(mutex_);
  // set by shut() while slots are handed out: keeps this pool alive until the last is back
  std::shared_ptr<ReceivePool> self_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::transport
