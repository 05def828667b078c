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

// Set in the id of every receive, whose other bits are the slot's number. An id without this bit is
// that of a WorkId.
inline constexpr std::uint64_t kReceiveBit = std::uint64_t{1} << 63;

// Owns page-aligned, zeroed, registered memory. Thread: one.
class RegisteredPages {
 public:
  // `remote_write`: a peer may write into the pages, in order (without relaxed ordering).
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

// The receive slots of a port. Posts each slot that is not filled to the shared receive queue.
// Outlives the port while messages are held, and then only keeps their memory.
class PostedPool final : public ReceivePool {
 public:
  // Each account keeps base_credits slots, and one more for a control message.
  static Result<std::shared_ptr<PostedPool>> create(std::shared_ptr<Loop> loop,
                                                    std::shared_ptr<Context> context, ibv_srq* srq,
                                                    const PortOptions& options);
  PostedPool(std::shared_ptr<Loop> loop, std::shared_ptr<Context> context, ibv_srq* srq,
             const PortOptions& options, std::unique_ptr<RegisteredPages> pages);

  // Posts the slots that were freed since the last call. Only then may the peer be granted credits
  // for them.
  Status post_freed();
  [[nodiscard]] bool all_posted() const { return freed_.empty(); }
  // Returns a slot that the device gave back; null for a number that names no slot.
  ReceiveSlot* slot(std::uint32_t index) { return index < slots_.size() ? &slots_[index] : nullptr; }
  // Frees a filled or flushed slot that has no owner.
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

// Send buffers for messages that are too long to go inline: the device sends from them. Grows as
// needed, to a bound. The endpoints of a port share it. Thread: the loop.
class StagingPool {
 public:
  struct Buffer {
    std::uint32_t index = 0;
    std::byte* data = nullptr;
    std::uint32_t lkey = 0;
  };
  StagingPool(std::shared_ptr<Context> context, std::uint32_t buffer_bytes, std::uint32_t limit)
      : context_(std::move(context)), buffer_bytes_(buffer_bytes), limit_(limit) {}
  // Returns a free buffer. kResourceExhausted: all are in use, or memory cannot be registered.
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

// Two words for each endpoint of a port: one into which the peer writes grants, and one from which
// this side's grants are written. Thread: the loop; the device writes the first word at any time.
class CreditWords {
 public:
  static Result<std::unique_ptr<CreditWords>> create(std::shared_ptr<Context> context, std::uint32_t count);
  void clear(std::uint32_t index);
  [[nodiscard]] std::uint64_t address(std::uint32_t index) const;
  [[nodiscard]] std::uint32_t rkey() const { return pages_->rkey(); }
  [[nodiscard]] std::uint64_t read(std::uint32_t index) const;
  // Returns the place of a byte that is not read again.
  [[nodiscard]] ibv_sge scratch() const;
  // Sets the word from which the next grant is written, and returns its place.
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
  const std::uint32_t count_;  // number of pairs of words; one more pair behind them is the scratch
};

}  // namespace slime::transport::verbs
