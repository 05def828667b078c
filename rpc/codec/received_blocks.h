#pragma once

// Private to rpc.

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "rpc/attachment.h"
#include "transport/provider.h"

namespace slime::rpc {

// Registered blocks that receive the large attachments of one connection, and are reused. A
// received attachment holds its block. Sent back to the same peer, it stays in the block: over shm
// the peer maps the block, and copies two to three times as fast as the kernel copies other memory.
//
// A block holds only bytes of one peer, which may read the block while the connection lasts; other
// peers never get its descriptor. Making a block makes all its pages, on the loop, so each
// attachment that was read completely allows one new block of its size class, and each table at
// most one; announced bytes allow none. The blocks of all connections are bounded.
class ReceivedBlocks final : public std::enable_shared_from_this<ReceivedBlocks> {
 public:
  ReceivedBlocks(transport::Device& device, std::uint64_t endpoint);
  ReceivedBlocks(const ReceivedBlocks&) = delete;
  ReceivedBlocks& operator=(const ReceivedBlocks&) = delete;
  ~ReceivedBlocks();

  // Returns a block; null: none for this size. Thread: the loop, like all functions unless stated.
  std::shared_ptr<const Registered> take(std::uint64_t length_bytes);
  // Later calls of take() are for another body.
  void begin_table() { may_make_ = true; }
  void note_received(std::uint64_t length_bytes);
  // Ends the registrations of all blocks. The memory of a block lives as long as its attachments.
  void close();

 private:
  struct Block;
  class Lease;
  Result<std::shared_ptr<Block>> make(std::uint64_t bytes);
  void give(const std::shared_ptr<Block>& block) noexcept;  // any thread

  transport::Device& device_;
  const std::uint64_t endpoint_;
  bool may_make_ = false;     // this table may make a block
  std::uint64_t earned_ = 0;  // a bit for each size class of which a block may be made
  Mutex mutex_;
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
  std::list<std::shared_ptr<Block>> idle_ SLIME_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Block>> in_use_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::rpc
