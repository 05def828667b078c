#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/result.h"
#include "transport/receive_pool.h"
#include "transport/verbs/context.h"

namespace slime::transport::verbs {

// Bit in the id of a work request that marks a receive; the other bits are then the number of its
// slot. An id without this bit is a WorkId.
inline constexpr std::uint64_t kReceiveBit = std::uint64_t{1} << 63;

// Owns page-aligned, zeroed, registered memory. Thread: one.
class RegisteredPages {
 public:
  // `remote_write`: a peer may write into the pages. Its writes arrive in order, because the pages
  // are registered without relaxed ordering.
  static Result<std::unique_ptr<RegisteredPages>> create(std::shared_ptr<Context> context, std::size_t bytes,
                                                         bool remote_write);
  RegisteredPages(const RegisteredPages&) = delete;
  RegisteredPages& operator=(const RegisteredPages&) = delete;
  ~RegisteredPages();
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint32_t lkey() const { return mr_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const { return mr_->rkey; }

 private:
  RegisteredPages(std::shared_ptr<Context> context, std::byte* data, std::size_t bytes)
      : context_(std::move(context)), data_(data), bytes_(bytes) {}
  const std::shared_ptr<Context> context_;
  std::byte* const data_;
  const std::size_t bytes_;
  ibv_mr* mr_ = nullptr;
};

// The receive slots of a port. Each slot that holds no message is posted to the shared receive
// queue. While messages are held, the pool outlives the port; then it only keeps their memory.
class PostedPool final : public ReceivePool {
 public:
  // Makes the slots and posts them to `srq`. The account of each endpoint keeps base_credits slots,
  // and one more for a control message.
  static Result<std::shared_ptr<PostedPool>> create(std::shared_ptr<Loop> loop,
                                                    std::shared_ptr<Context> context, ibv_srq* srq,
                                                    const PortOptions& options);
  PostedPool(std::shared_ptr<Loop> loop, std::shared_ptr<Context> context, ibv_srq* srq,
             const PortOptions& options, std::unique_ptr<RegisteredPages> pages);

  // Posts the slots that were freed since the last call. A slot must be posted before the peer is
  // granted a credit for it.
  Status post_freed();
  [[nodiscard]] bool all_posted() const { return freed_.empty(); }
  // Returns the slot with the number `index`, which the device gave back; null if no slot has it.
  ReceiveSlot* slot(std::uint32_t index) { return index < slots_.size() ? &slots_[index] : nullptr; }
  // Frees a slot that the device gave back and that no message holds.
  void put_back(ReceiveSlot& slot) { put_free(slot); }
  [[nodiscard]] std::uint64_t posts() const { return posts_; }

 private:
  void put_free(ReceiveSlot& slot) override { freed_.push_back(&slot); }

  const std::shared_ptr<Context> context_;
  ibv_srq* const srq_;
  const std::unique_ptr<RegisteredPages> pages_;
  std::deque<ReceiveSlot> slots_;
  std::vector<ReceiveSlot*> freed_;
  std::uint64_t posts_ = 0;
};

// Send buffers, from which the device sends messages that are too long to be posted inline. The
// endpoints of a port share the pool, which grows up to `limit` buffers. Thread: the loop.
class StagingPool {
 public:
  struct Buffer {
    std::uint32_t index = 0;
    std::byte* data = nullptr;
    std::uint32_t lkey = 0;
  };
  StagingPool(std::shared_ptr<Context> context, std::uint32_t buffer_bytes, std::uint32_t limit)
      : context_(std::move(context)), buffer_bytes_(buffer_bytes), limit_(limit) {}
  // Returns a free buffer. Errors: kResourceExhausted if all are in use; the registration's error
  // if the memory of more buffers cannot be registered.
  Result<Buffer> take();
  void give(std::uint32_t index) { free_.push_back(index); }
  [[nodiscard]] Buffer buffer(std::uint32_t index) const;
  [[nodiscard]] std::uint32_t buffer_bytes() const { return buffer_bytes_; }
  [[nodiscard]] std::size_t in_use() const { return slabs_.size() * kSlabBuffers - free_.size(); }

 private:
  static constexpr std::uint32_t kSlabBuffers = 32;
  const std::shared_ptr<Context> context_;
  const std::uint32_t buffer_bytes_;
  const std::uint32_t limit_;
  std::vector<std::unique_ptr<RegisteredPages>> slabs_;
  std::vector<std::uint32_t> free_;
};

// Two words of 8 bytes for each endpoint of a port. The peer's grants are written into the first
// word by RDMA; this side's grants are sent from the second. Thread: the loop; the device writes
// the first word at any time.
class CreditWords {
 public:
  static Result<std::unique_ptr<CreditWords>> create(std::shared_ptr<Context> context, std::uint32_t count);
  void clear(std::uint32_t index);
  [[nodiscard]] std::uint64_t address(std::uint32_t index) const;
  [[nodiscard]] std::uint32_t rkey() const { return pages_->rkey(); }
  [[nodiscard]] std::uint64_t read(std::uint32_t index) const;
  // Returns a place for the bytes of reads whose result nothing uses.
  [[nodiscard]] ibv_sge scratch() const;
  // Stores `value` in the word from which the next grant is sent, and returns the place of the
  // word.
  ibv_sge source(std::uint32_t index, std::uint64_t value);

 private:
  struct Pair {
    std::uint64_t theirs = 0;
    std::uint64_t ours = 0;
  };
  CreditWords(std::unique_ptr<RegisteredPages> pages, std::uint32_t count)
      : pages_(std::move(pages)), count_(count) {}
  [[nodiscard]] Pair& pair(std::uint32_t index) const {
    return reinterpret_cast<Pair*>(pages_->data())[index];
  }
  const std::unique_ptr<RegisteredPages> pages_;
  // number of pairs of words; one more pair behind them is for scratch()
  const std::uint32_t count_;
};

}  // namespace slime::transport::verbs
