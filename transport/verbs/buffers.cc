#include "transport/verbs/buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "base/check.h"
#include "base/str.h"
#include "transport/verbs/errors.h"

namespace slime::transport::verbs {

Result<std::unique_ptr<RegisteredPages>> RegisteredPages::create(std::shared_ptr<Context> context,
                                                                 std::size_t bytes, bool remote_write) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return from_errno(str("mmap of ", bytes, " bytes"), errno);
  std::unique_ptr<RegisteredPages> out(
      new RegisteredPages(std::move(context), static_cast<std::byte*>(address), bytes));
  const int access = IBV_ACCESS_LOCAL_WRITE | (remote_write ? IBV_ACCESS_REMOTE_WRITE : 0);
  out->mr_ = out->context_->functions.reg_mr(out->context_->pd, address, bytes, access);
  if (out->mr_ == nullptr)
    return call_error(str("ibv_reg_mr of ", bytes, " bytes for message buffers"), errno, true);
  return out;
}

RegisteredPages::~RegisteredPages() {
  // If dereg_mr() failed, the device may still write into the memory: keeps it mapped for ever.
  if (mr_ != nullptr && context_->ended(context_->functions.dereg_mr(mr_)) != 0) return;
  munmap(data_, bytes_);
}

// ----------------------------------------------------------------------------------- receive slots

Result<std::shared_ptr<PostedPool>> PostedPool::create(std::shared_ptr<Loop> loop,
                                                       std::shared_ptr<Context> context, ibv_srq* srq,
                                                       const PortOptions& options) {
  const std::size_t bytes = std::size_t{options.pool_slots} * options.slot_bytes;
  auto pages = RegisteredPages::create(context, bytes, false);
  if (!pages) return std::move(pages).error();
  auto pool =
      std::make_shared<PostedPool>(std::move(loop), std::move(context), srq, options, std::move(*pages));
  SLIME_TRY(pool->post_freed());
  return pool;
}

PostedPool::PostedPool(std::shared_ptr<Loop> loop, std::shared_ptr<Context> context, ibv_srq* srq,
                       const PortOptions& options, std::unique_ptr<RegisteredPages> pages)
    : ReceivePool(std::move(loop), options, options.base_credits + 1),
      context_(std::move(context)),
      srq_(srq),
      pages_(std::move(pages)) {
  freed_.reserve(options.pool_slots);
  for (std::uint32_t i = 0; i < options.pool_slots; ++i) {
    slots_.emplace_back(i, pages_->data() + std::size_t{i} * options.slot_bytes);
    freed_.push_back(&slots_.back());
  }
}

Status PostedPool::post_freed() {
  constexpr std::size_t kChain = 32;
  std::array<ibv_recv_wr, kChain> requests;
  std::array<ibv_sge, kChain> parts;
  while (!freed_.empty()) {
    const std::size_t count = std::min(kChain, freed_.size());
    const std::size_t begin = freed_.size() - count;
    for (std::size_t i = 0; i < count; ++i) {
      const ReceiveSlot& slot = *freed_[begin + i];
      parts[i] = {reinterpret_cast<std::uintptr_t>(slot.memory()), options().slot_bytes, pages_->lkey()};
      requests[i] = {kReceiveBit | slot.index(), i + 1 < count ? &requests[i + 1] : nullptr, &parts[i], 1};
    }
    ibv_recv_wr* bad = nullptr;
    const int rc = context_->functions.post_srq_recv(srq_, requests.data(), &bad);
    if (rc != 0) {
      // The requests before `bad` are posted. The next call tries the others again.
      const std::size_t posted = bad == nullptr ? 0 : static_cast<std::size_t>(bad - requests.data());
      freed_.erase(freed_.begin() + static_cast<std::ptrdiff_t>(begin),
                   freed_.begin() + static_cast<std::ptrdiff_t>(begin + posted));
      posts_ += posted;
      return call_error(str("ibv_post_srq_recv of ", count, " slots"), rc);
    }
    posts_ += count;
    freed_.resize(begin);
  }
  return {};
}

// ------------------------------------------------------------------------------------ send buffers

Result<StagingPool::Buffer> StagingPool::take() {
  if (free_.empty()) {
    if (slabs_.size() * kSlabBuffers >= limit_)
      return Status(Code::kResourceExhausted, str("all ", limit_, " send buffers of this port are in use"));
    auto pages = RegisteredPages::create(context_, std::size_t{kSlabBuffers} * buffer_bytes_, false);
    if (!pages) return std::move(pages).error();
    const auto first = static_cast<std::uint32_t>(slabs_.size() * kSlabBuffers);
    slabs_.push_back(std::move(*pages));
    for (std::uint32_t i = kSlabBuffers; i > 0; --i) free_.push_back(first + i - 1);
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  return buffer(index);
}

StagingPool::Buffer StagingPool::buffer(std::uint32_t index) const {
  const RegisteredPages& slab = *slabs_[index / kSlabBuffers];
  return {index, slab.data() + std::size_t{index % kSlabBuffers} * buffer_bytes_, slab.lkey()};
}

// ------------------------------------------------------------------------------------ credit words

Result<std::unique_ptr<CreditWords>> CreditWords::create(std::shared_ptr<Context> context,
                                                         std::uint32_t count) {
  auto pages = RegisteredPages::create(std::move(context), (std::size_t{count} + 1) * sizeof(Pair), true);
  if (!pages) return std::move(pages).error();
  return std::unique_ptr<CreditWords>(new CreditWords(std::move(*pages), count));
}

void CreditWords::clear(std::uint32_t index) {
  std::atomic_ref(pair(index).theirs).store(0, std::memory_order_relaxed);
  pair(index).ours = 0;
}

std::uint64_t CreditWords::address(std::uint32_t index) const {
  return reinterpret_cast<std::uintptr_t>(&pair(index).theirs);
}

std::uint64_t CreditWords::read(std::uint32_t index) const {
  return std::atomic_ref(pair(index).theirs).load(std::memory_order_acquire);
}

ibv_sge CreditWords::scratch() const {
  return {reinterpret_cast<std::uintptr_t>(&pair(count_).theirs), 1, pages_->lkey()};
}

ibv_sge CreditWords::source(std::uint32_t index, std::uint64_t value) {
  std::atomic_ref(pair(index).ours).store(value, std::memory_order_relaxed);
  return {reinterpret_cast<std::uintptr_t>(&pair(index).ours), sizeof value, pages_->lkey()};
}

}  // namespace slime::transport::verbs
