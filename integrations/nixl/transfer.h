#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/peer_agent.h"
#include "base/mutex.h"
#include "integrations/nixl/remote.h"

namespace slime::nixl {

// Registered memory of this process.
struct LocalMemory {
  MemoryRegion region;
  std::uintptr_t base = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t number = 0;
};

// The blocks of a transfer, each checked to lie inside its registrations. Blocks that are adjacent
// on both sides are merged.
class Blocks {
 public:
  struct Block {
    std::uint32_t local;   // index of its memory
    std::uint32_t remote;  // index of its memory
    std::uint64_t local_offset;
    std::uint64_t remote_offset;
    std::uint64_t length_bytes;
  };
  void reserve(std::size_t count) { blocks_.reserve(count); }
  // Adds a block. Returns kInvalidArgument if its bytes are not inside of these two registrations.
  Status add(const std::shared_ptr<LocalMemory>& local, std::uintptr_t local_address,
             const std::shared_ptr<RemoteMemory>& remote, std::uintptr_t remote_address,
             std::uint64_t length_bytes);

  [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }
  [[nodiscard]] const std::vector<std::shared_ptr<LocalMemory>>& locals() const { return locals_; }
  [[nodiscard]] const Remote::Memories& remotes() const { return remotes_; }
  [[nodiscard]] std::uint64_t length_bytes() const { return length_bytes_; }
  // Frees the blocks once they are bound. Keeps the memories, which are needed to bind again.
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

// A prepared transfer, which may be posted any number of times, one post at a time. Its callbacks
// keep this object alive, so the user may drop it at any time. Thread: post() one thread at a time,
// check() any.
class TransferRequest : public std::enable_shared_from_this<TransferRequest> {
 public:
  struct Bounds {
    Nanos stall{};
    Nanos timeout{};  // zero: none
  };
  TransferRequest(Transfer transfer, std::shared_ptr<Remote> remote, Blocks blocks, Bounds bounds);

  // Looks up the regions that are still unknown, so that the first post need not.
  void prepare();
  // Starts the transfer. `notification` is sent to the peer after all bytes have arrived; empty:
  // none. Returns false, and posts nothing, while an earlier post is in flight.
  bool post(std::optional<ByteVector> notification);
  struct Outcome {
    Status status;
    bool fresh = false;  // check() has not reported this post before
  };
  // Returns the outcome of the post. While the post is in flight, drives the agent's loop for at
  // most limits::kCheckSpin, and returns nothing if the post is then still in flight.
  std::optional<Outcome> check();
  // Drops the request: starts no further operation, and sends no notification. Operations that are
  // on the wire end by themselves, and use their memory until then.
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
  const bool empty_;  // whether there are no blocks

  // The members from here to `began_` are of the current post; only the thread that takes the
  // post's next step uses them.
  PreparedBatch batch_;
  bool bound_ = false;    // whether batch_ is bound to regions that may still be valid
  bool retried_ = false;  // this post has looked up its regions a second time, on a new connection
  std::optional<ByteVector> notification_;
  std::uint64_t posts_ = 0;
  bool measures_ = false;  // whether this post is measured
  TimePoint began_{};

  std::atomic<bool> under_way_{false};
  std::atomic<bool> abandoned_{false};
  Mutex mutex_;
  Future<None> moving_ SLIME_GUARDED_BY(mutex_);  // check() drives the loop by it
  Outcome outcome_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::nixl
