#pragma once

// Private to rpc.

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/fork.h"
#include "base/mutex.h"
#include "rpc/attachment.h"
#include "transport/loop.h"
#include "transport/provider.h"

namespace slime::rpc {

// Registered blocks of memory of one connection, which are used again and again: received
// attachments and bodies are read into them, and bodies to lend are copied into them. So a call of
// a size that was seen before registers nothing, and over shm each side maps the other one's block
// only once.
//
// A block holds only bytes of one connection. Its peer may read the block while the connection
// lasts, and so may see earlier bytes that it sent or was sent, and what the receiver writes into
// an array that it received. Other peers never get its descriptor. A block is used for one thing at
// a time.
//
// Making a block touches all its pages on the loop, so the number of new blocks for received bytes
// is limited: one for each body or attachment that was read completely, of its size class, and at
// most one in each table. Announced bytes allow no block. The blocks of a connection and of the
// process are bounded in bytes and in number, since each has a descriptor. Idle blocks are closed
// after a while.
class ConnectionBlocks final : public std::enable_shared_from_this<ConnectionBlocks> {
 private:
  struct Block;

 public:
  // The use of one block. The destructor gives the block back, on any thread.
  class Lease final : public Registered {
   public:
    Lease(std::shared_ptr<ConnectionBlocks> blocks, std::shared_ptr<Block> block)
        : blocks_(std::move(blocks)), block_(std::move(block)) {}
    ~Lease() override { blocks_->give(block_); }
    [[nodiscard]] MutableBytes bytes() const override;
    [[nodiscard]] const transport::DeviceRegion& region() const;
    [[nodiscard]] Result<const transport::DeviceRegion*> on(const transport::Device&) const override {
      return &region();
    }
    [[nodiscard]] bool shown_to(std::uint64_t endpoint) const override {
      return endpoint == blocks_->endpoint_;
    }
    bool discard() const override;
    // Ends the registration, so that the peer reads the block no more; the block is not used again.
    // Thread: the loop.
    void retire() const;

   private:
    const std::shared_ptr<ConnectionBlocks> blocks_;
    const std::shared_ptr<Block> block_;
  };
  using Taken = std::shared_ptr<const Lease>;  // null: no block is available

  ConnectionBlocks(transport::Loop& loop, transport::Device& device, std::uint64_t endpoint);
  ConnectionBlocks(const ConnectionBlocks&) = delete;
  ConnectionBlocks& operator=(const ConnectionBlocks&) = delete;
  ~ConnectionBlocks();

  // Return a block for an attachment or a body of this length. The functions for bodies return null
  // where the device reads memory as fast without a block. Thread: the loop, as for all functions
  // of this class without another statement.
  Taken take_for_attachment(std::uint64_t length_bytes);
  Taken take_for_received(std::uint64_t length_bytes);
  Taken take_to_lend(std::uint64_t length_bytes);
  // Begins a table of attachments, or a body, for which later calls of take_for_attachment() and
  // take_for_received() ask.
  void begin_table() { may_make_ = true; }
  void note_received(std::uint64_t length_bytes);
  // Ends the registrations of all blocks. The memory of a block lives as long as its lease.
  void close();

  [[nodiscard]] std::uint64_t made() const { return made_; }  // blocks, since the start
  [[nodiscard]] std::uint64_t held_bytes();                   // of all blocks

 private:
  enum class Make : std::uint8_t { kAtOnce, kIfEarned };

  [[nodiscard]] std::uint64_t lent_bytes();
  Taken take(std::uint64_t length_bytes, Make rule);
  std::shared_ptr<Block> take_idle(std::uint64_t bytes);
  std::shared_ptr<Block> make(std::uint64_t bytes);
  bool make_room(std::uint64_t bytes);
  void give(const std::shared_ptr<Block>& block) noexcept;  // any thread
  [[nodiscard]] std::uint64_t sum() const SLIME_REQUIRES(mutex_);
  void arm_sweep();
  void sweep();

  transport::Loop& loop_;
  transport::Device& device_;
  const std::uint64_t endpoint_;
  const std::uint64_t process_ = fork_generation();
  bool may_make_ = false;     // this table may make a block
  std::uint64_t earned_ = 0;  // one bit for each size class of which one new block may be made
  std::uint64_t made_ = 0;
  transport::TimerId sweep_;
  Mutex mutex_;
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
  std::list<std::shared_ptr<Block>> idle_ SLIME_GUARDED_BY(mutex_);  // the one given back last at the end
  std::vector<std::shared_ptr<Block>> in_use_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::rpc
