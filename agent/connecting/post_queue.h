#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "transport/endpoint.h"
#include "transport/loop.h"
#include "transport/operation.h"
#include "transport/time_bounds.h"

namespace slime::agent {

enum class OneSided : std::uint8_t { kRead, kWrite, kWriteWithImm, kFetchAdd, kCompareSwap };

// One post to an endpoint: a batch of copies, or one atomic. The memory behind `copies`, and all
// regions that the post names, must stay valid until its operation completes.
struct Post {
  OneSided kind = OneSided::kRead;
  std::uint32_t imm = 0;                           // kWriteWithImm
  std::span<const transport::CopyBlock> copies{};  // of reads and writes
  transport::AtomicTarget target{};                // of atomics
  std::uint64_t value = 0;                         // of atomics: the number to add, or to store
  std::uint64_t expected = 0;                      // kCompareSwap
};

// Posts one-sided operations to one endpoint, in order. Keeps operations for which the endpoint has
// no room, and posts them once it has. Thread: the loop. Lifetime: the endpoint outlives the queue,
// which must be empty when it is destroyed.
class PostQueue {
 public:
  // `peer` is for error texts.
  PostQueue(transport::Loop& loop, transport::Endpoint& endpoint, std::string peer)
      : loop_(loop), endpoint_(endpoint), peer_(std::move(peer)) {}
  PostQueue(const PostQueue&) = delete;
  PostQueue& operator=(const PostQueue&) = delete;
  ~PostQueue() { SLIME_CHECK(waiting_.empty()); }

  // Posts the operation, or keeps it until the endpoint has room. The operation completes with the
  // outcome of the post; with the endpoint's error if the endpoint refuses the post; with
  // kDeadlineExceeded if its deadline or stall bound passes while it is kept; with
  // kResourceExhausted if limits::kStalledOperations are kept already. A refused operation
  // completes inside this call.
  void post(const Post& post, transport::Operation& operation);
  // Removes a kept operation without completing it. Returns false if the operation is not kept
  // here.
  bool withdraw(const transport::Operation& operation);
  // Posts the kept operations for which the endpoint has room now.
  void on_writable();
  // Completes all kept operations with `reason`.
  void fail_all(const Status& reason);

  [[nodiscard]] bool empty() const { return waiting_.empty(); }

 private:
  struct Entry {
    Post post;
    transport::Operation* operation = nullptr;
    transport::TimeBounds bounds;
    transport::TimerId timer;
  };
  using Place = std::list<Entry>::iterator;

  Status try_post(const Post& post, transport::Operation& operation);
  void keep(const Post& post, transport::Operation& operation);
  void watch(Place entry, bool looked);
  transport::Operation& remove(Place entry);

  transport::Loop& loop_;
  transport::Endpoint& endpoint_;
  const std::string peer_;
  std::list<Entry> waiting_;
};

}  // namespace slime::agent
