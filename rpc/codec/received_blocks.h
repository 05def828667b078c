#pragma once

// Private to rpc.

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "rpc/attachment.h"
#include "transport/provider.h"

namespace slime::rpc {

// Registered memory of Slime's own that one connection's large attachments are read into again and again.
// What came lies in a block until nobody has it any more, and goes back to its sender as it is: over shm the
// sender maps it, and copies two to three times as fast as the kernel copies other memory.
//
// A block holds only what this one peer sent: its peer may read it for as long as the connection lasts. Other
// peers are never told of it. Making one makes all its pages, on the loop, so that is earned: each attachment
// that was really read lets one block of its size class be made, and no table more than one. What is
// announced makes none. For all connections together there is a bound.
class ReceivedBlocks final : public std::enable_shared_from_this<ReceivedBlocks> {
 public:
  ReceivedBlocks(transport::Device& device, std::uint64_t endpoint);
  ReceivedBlocks(const ReceivedBlocks&) = delete;
  ReceivedBlocks& operator=(const ReceivedBlocks&) = delete;
  ~ReceivedBlocks();

  // Null: there is none for so much. Thread: the loop, as for all but what is said.
  std::shared_ptr<const Registered> take(std::uint64_t length_bytes);
  // What take() is asked for from now on is of another body.
  void begin_table() { may_make_ = true; }
  void note_received(std::uint64_t length_bytes);
  // Ends the registrations, also of those that somebody has: the memory stays as long as he does.
  void close();

 private:
  struct Block;
  class Lease;
  Result<std::shared_ptr<Block>> make(std::uint64_t bytes);
  void give(const std::shared_ptr<Block>& block) noexcept;  // any thread

  transport::Device& device_;
  const std::uint64_t endpoint_;
  bool may_make_ = false;     // for this table
  std::uint64_t earned_ = 0;  // a bit for each size class of which one may be made
  std::mutex mutex_;          // guards what follows
  bool closed_ = false;
  std::list<std::shared_ptr<Block>> idle_;
  std::vector<std::shared_ptr<Block>> in_use_;
};

}  // namespace slime::rpc
