#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/peer_agent.h"
#include "integrations/nixl/remote.h"

namespace slime::nixl {

// Memory of this process that was registered.
struct LocalMemory {
  MemoryRegion region;
  std::uintptr_t base = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t number = 0;
};

// Which blocks a transfer moves: checked, and those that follow each other on both sides made one.
class Blocks {
 public:
  struct Block {
    std::uint32_t local;   // the index of its memory
    std::uint32_t remote;  // likewise
    std::uint64_t local_offset;
    std::uint64_t remote_offset;
    std::uint64_t length_bytes;
  };
  void reserve(std::size_t count) { blocks_.reserve(count); }
  // kInvalidArgument for bytes that are not in these registrations.
  Status add(const std::shared_ptr<LocalMemory>& local, std::uintptr_t local_address,
             const std::shared_ptr<RemoteMemory>& remote, std::uintptr_t remote_address,
             std::uint64_t length_bytes);

  [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }
  [[nodiscard]] const std::vector<std::shared_ptr<LocalMemory>>& locals() const { return locals_; }
  [[nodiscard]] const Remote::Memories& remotes() const { return remotes_; }
  [[nodiscard]] std::uint64_t length_bytes() const { return length_bytes_; }
  // They are bound: only what is needed to bind them anew is left.
  void drop_blocks() {
    blocks_ = {};
    indices_ = {};
  }

 private:
  template <class T>
  std::uint32_t index_of(std::vector<std::shared_ptr<T>>& known, const std::shared_ptr<T>& memory,
                         std::uint32_t hint);

  std::vector<Block> blocks_;
  std::vector<std::shared_ptr<LocalMemory>> locals_;
  Remote::Memories remotes_;
  std::unordered_map<const void*, std::uint32_t> indices_;  // of both
  std::uint64_t length_bytes_ = 0;
};

// A prepared transfer, which is posted any number of times, one post at a time. Its callbacks keep
// it, so a user may let go of it at any time. Thread: one at a time posts; any checks.
class TransferRequest : public std::enable_shared_from_this<TransferRequest> {
 public:
  struct Bounds {
    Nanos stall{};
    Nanos timeout{};  // zero: none
  };
  TransferRequest(Transfer transfer, std::shared_ptr<Remote> remote, Blocks blocks, Bounds bounds);

  // Asks for the regions, if they are not known, so that the first post finds them.
  void prepare();
  // `notification`: what the peer is told when all bytes are there; empty: nothing. False, and
  // nothing is posted, while an earlier post is under way.
  bool post(std::optional<ByteVector> notification);
  struct Outcome {
    Status status;
    bool fresh = false;  // no earlier notification was sent for this post
  };
  // Nothing while it is under way. Drives the agent's loop for a moment then.
  std::optional<Outcome> check();
  // The user wants no more of it: nothing is sent that has not been handed to the connection, and
  // no notification. What is on the wire ends by itself, and keeps its memory until then.
  void abandon();

  [[nodiscard]] std::uint64_t length_bytes() const { return blocks_.length_bytes(); }
  [[nodiscard]] const Remote& remote() const { return *remote_; }

 private:
  void run();
  Status bind(const Remote::Regions& regions);
  void launch();
  void on_moved(Status status);
  void finish(Status status);

  const Transfer transfer_;
  const std::shared_ptr<Remote> remote_;
  const Bounds bounds_;
  Blocks blocks_;
  const bool empty_;  // there are no blocks

  // Of the current post: used by the thread that takes its next step.
  PreparedBatch batch_;
  bool bound_ = false;    // to regions that were good the last time
  bool retried_ = false;  // this post has looked for regions of a new connection
  std::optional<ByteVector> notification_;
  std::uint64_t posts_ = 0;
  bool measures_ = false;  // this post
  TimePoint began_{};

  std::atomic<bool> under_way_{false};
  std::atomic<bool> abandoned_{false};
  std::mutex mutex_;
  Future<None> moving_;  // to drive by
  Outcome outcome_;
};

}  // namespace slime::nixl
