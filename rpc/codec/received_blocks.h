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
// received attachment holds its block. If the attachment is sent back to the same peer, its bytes
// stay in the block: over shm the peer maps the block, and copies two to three times as fast as the
// kernel copies other memory.
//
// A block holds only bytes of one peer, which may read the block while the connection lasts; other
// peers never get its descriptor. Making a block touches all its pages on the loop, so the number
// of new blocks is limited: one for each attachment that was read completely, of that attachment's
// size class, and at most one in each table. Announced bytes allow no block. The blocks of all
// connections are bounded.
class ReceivedBlocks final : public std::enable_shared_from_this<ReceivedBlocks> {
 public:
  ReceivedBlocks(transport::Device& device, std::uint64_t endpoint);
  ReceivedBlocks(const ReceivedBlocks&) = delete;
  ReceivedBlocks& operator=(const ReceivedBlocks&) = delete;
  ~ReceivedBlocks();

  // Returns a block for an attachment of this length; null if none is available. Thread: the loop,
  // as for all functions of this class without another statement.
  std::shared_ptr<const Registered> take(std::uint64_t length_bytes);
  // Begins the table of a new body, for which later calls of take() ask.
  void begin_table() { may_make_ = true; }
  void note_received(std::uint64_t length_bytes);
  // Ends the registrations of all blocks. The memory of a block lives as long as the attachments in
  // it.
  void close();

 private:
  struct Block;
  class Lease;
  Result<std::shared_ptr<Block>> make(std::uint64_t bytes);
  void give(const std::shared_ptr<Block>& block) noexcept;  // any thread

  transport::Device& device_;
  const std::uint64_t endpoint_;
  bool may_make_ = false;     // this table may make a block
  std::uint64_t earned_ = 0;  // one bit for each size class of which one new block may be made
  Mutex mutex_;
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
  std::list<std::shared_ptr<Block>> idle_ SLIME_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Block>> in_use_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::rpc
