#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/endpoint.h"
#include "transport/loop.h"
#include "transport/provider.h"

namespace slime::transport::soft {

class SoftEndpoint;
class ReceivePool;

// What one endpoint has promised to its peer. Lives until the endpoint is gone and the last of its messages
// is released.
struct CreditAccount {
  SoftEndpoint* owner = nullptr;  // null once the endpoint is gone
  std::uint32_t promised = 0;     // slots that the peer may fill, or has filled and that are not released
  std::uint32_t held = 0;         // of these, filled
};

// One receive slot; its memory comes with its first use.
class ReceiveSlot final : public Message::Slot {
 public:
  void release() noexcept override;

 private:
  friend class ReceivePool;
  friend class SoftEndpoint;
  std::unique_ptr<std::byte[]> bytes_;
  std::shared_ptr<CreditAccount> account_;  // set while it is out
  std::shared_ptr<ReceivePool> pool_;       // set while it is out: a late release finds the pool alive
};

// The receive slots that the endpoints of one port share. Invariant: what all accounts together have reserved
// never exceeds the slots, so a message that had a credit always finds one. An account reserves at least the
// base while its endpoint lives. Thread: the loop, but for release().
class ReceivePool : public std::enable_shared_from_this<ReceivePool> {
 public:
  ReceivePool(std::shared_ptr<Loop> loop, const PortOptions& options)
      : options_(options), loop_(std::move(loop)), unreserved_(options.pool_slots) {}

  [[nodiscard]] const PortOptions& options() const { return options_; }
  [[nodiscard]] std::uint32_t unreserved() const { return unreserved_; }

  // Reserves the base, and promises it; false when the pool cannot.
  bool open(CreditAccount& account);
  // The endpoint (or the attempt to make one) is over; held messages keep their slots.
  void close(CreditAccount& account);
  // One more promise: the base is always there, what exceeds it comes out of what is free, and no endpoint
  // takes more of that than it leaves for others.
  bool promise(CreditAccount& account);
  void take_back(CreditAccount& account, std::uint32_t promises);

  // A slot for a message that had a credit.
  ReceiveSlot& take_slot(const std::shared_ptr<CreditAccount>& account);
  // Puts back a slot that was never handed out as a message.
  void drop_slot(ReceiveSlot& slot);
  // Any thread.
  void release(ReceiveSlot& slot);
  // The port is gone: later releases only free.
  void shut();

 private:
  void recycle(ReceiveSlot& slot);
  void run_released();

  const PortOptions options_;
  std::shared_ptr<Loop> loop_;  // guarded by mutex_; null once shut
  std::uint32_t unreserved_;
  std::vector<std::unique_ptr<ReceiveSlot>> slots_;
  std::vector<ReceiveSlot*> free_;

  std::mutex mutex_;  // guards released_, and loop_
  std::vector<ReceiveSlot*> released_;
};

}  // namespace slime::transport::soft
