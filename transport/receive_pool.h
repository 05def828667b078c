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

// Is told when a slot of its account is free again. Thread: the loop.
class CreditOwner {
 public:
  virtual void on_slot_free() noexcept = 0;

 protected:
  ~CreditOwner() = default;
};

// The slots that one endpoint has promised to its peer. Lives until the endpoint has closed the
// account and the last of its messages is released; until then the pool keeps it alive.
struct CreditAccount final : std::enable_shared_from_this<CreditAccount> {
  CreditOwner* owner = nullptr;  // null once the endpoint is gone
  // slots that the peer may fill, and filled ones that are not released
  std::uint32_t promised = 0;
  std::uint32_t held = 0;  // of these, filled
};

// One receive slot. Its memory is the pool's.
class ReceiveSlot final : public Message::Slot {
 public:
  ReceiveSlot(std::uint32_t index, std::byte* memory) : index_(index), memory_(memory) {}
  void release() noexcept override;
  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] std::byte* memory() const { return memory_; }

 private:
  friend class ReceivePool;
  const std::uint32_t index_;
  std::byte* const memory_;
  CreditAccount* account_ = nullptr;  // set, and alive, while the slot is handed out
  ReceivePool* pool_ = nullptr;
};

// The receive slots that the endpoints of one port share. Invariant: what all accounts together
// have reserved never exceeds the slots, so a message that had a credit always finds one. An
// account reserves at least the floor while its endpoint lives. Outlives its port while messages
// are held. Thread: the loop, but for release().
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

  // Reserves and promises the floor. Returns false if the pool has too few slots.
  bool open(CreditAccount& account);
  // Call when the endpoint, or the attempt to make one, has ended. Held messages keep their slots.
  void close(CreditAccount& account);
  // Promises one more slot. The slots of the floor are always there. Further slots come from the
  // free ones, of which each endpoint leaves a share to others.
  bool promise(CreditAccount& account);
  void take_back(CreditAccount& account, std::uint32_t promises);

  // Marks a slot as filled by the peer of `account`, which had a credit for it.
  void hand_out(ReceiveSlot& slot, CreditAccount& account) {
    SLIME_CHECK(account.held < account.promised);
    ++account.held;
    ++out_;
    slot.account_ = &account;
    slot.pool_ = this;
  }
  // Puts back a slot that was handed out, when its message has ended or was never made.
  void recycle(ReceiveSlot& slot);
  // Any thread.
  void release(ReceiveSlot& slot);
  // Call when the port ends: later releases only free the slots.
  void shut();

 protected:
  // Takes a slot that may be filled again.
  virtual void put_free(ReceiveSlot& slot) = 0;

 private:
  void run_released();

  const PortOptions options_;
  const std::uint32_t floor_;
  const Loop* const home_;  // only for comparison
  std::atomic<bool> shut_{false};
  std::shared_ptr<Loop> loop_ SLIME_GUARDED_BY(mutex_);  // null once shut
  std::uint32_t unreserved_;
  std::uint32_t out_ = 0;                               // slots handed out; once shut, guarded by mutex_
  std::vector<std::shared_ptr<CreditAccount>> closed_;  // accounts with messages that are still held

  Mutex mutex_;
  std::vector<ReceiveSlot*> released_ SLIME_GUARDED_BY(mutex_);
  // once shut: until the last slot is back
  std::shared_ptr<ReceivePool> self_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::transport
