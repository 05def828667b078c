#include "integrations/nixl/transfer.h"

#include <utility>

#include "base/str.h"
#include "integrations/nixl/limits.h"

namespace slime::nixl {
namespace {

constexpr Nanos kNoTimeout = Nanos::max();

bool inside(std::uintptr_t address, std::uint64_t length, std::uintptr_t base, std::uint64_t of) {
  return address >= base && address - base <= of && length <= of - (address - base);
}

}  // namespace

template <class T>
std::uint32_t Blocks::index_of(std::vector<std::shared_ptr<T>>& known, const std::shared_ptr<T>& memory,
                               std::uint32_t hint) {
  // often the memory of the block before
  if (hint < known.size() && known[hint] == memory) return hint;
  const auto [it, fresh] = indices_.try_emplace(memory.get(), static_cast<std::uint32_t>(known.size()));
  if (fresh) known.push_back(memory);
  return it->second;
}

Status Blocks::add(const std::shared_ptr<LocalMemory>& local, std::uintptr_t local_address,
                   const std::shared_ptr<RemoteMemory>& remote, std::uintptr_t remote_address,
                   std::uint64_t length_bytes) {
  if (!inside(local_address, length_bytes, local->base, local->length_bytes))
    return Status(Code::kInvalidArgument, str(length_bytes, " bytes are not inside the local registration"));
  if (!inside(remote_address, length_bytes, remote->base, remote->length_bytes))
    return Status(Code::kInvalidArgument, str(length_bytes, " bytes are not inside the remote registration"));
  const Block* const last = blocks_.empty() ? nullptr : &blocks_.back();
  Block block{index_of(locals_, local, last == nullptr ? 0 : last->local),
              index_of(remotes_, remote, last == nullptr ? 0 : last->remote), local_address - local->base,
              remote_address - remote->base, length_bytes};
  length_bytes_ += length_bytes;
  if (last != nullptr && last->local == block.local && last->remote == block.remote &&
      last->local_offset + last->length_bytes == block.local_offset &&
      last->remote_offset + last->length_bytes == block.remote_offset) {
    blocks_.back().length_bytes += length_bytes;
  } else {
    blocks_.push_back(block);
  }
  return {};
}

TransferRequest::TransferRequest(Transfer transfer, std::shared_ptr<Remote> remote, Blocks blocks,
                                 Bounds bounds)
    : transfer_(transfer),
      remote_(std::move(remote)),
      bounds_(bounds),
      blocks_(std::move(blocks)),
      empty_(blocks_.blocks().empty()) {}

void TransferRequest::prepare() {
  if (empty_) return;
  if (const auto regions = remote_->known(blocks_.remotes())) {
    bound_ = bind(*regions).ok();  // if binding fails, the post reports why
    return;
  }
  remote_->ask(blocks_.remotes(), [](const Result<Remote::Regions>&) {});
}

bool TransferRequest::post(std::optional<ByteVector> notification) {
  // Acquire: makes visible what the loop's thread wrote when the earlier post ended.
  if (under_way_.load(std::memory_order_acquire)) return false;
  notification_ = std::move(notification);
  retried_ = false;
  measures_ = posts_++ % limits::kMeasured == 0;
  if (measures_) began_ = steady_clock().now();
  under_way_.store(true, std::memory_order_relaxed);
  if (empty_)
    on_moved({});
  else
    run();
  return true;
}

void TransferRequest::run() {
  if (bound_) {
    if (!abandoned_.load(std::memory_order_relaxed) && batch_.done_now()) return on_moved({});
    return launch();
  }
  remote_->ask(blocks_.remotes(), [self = shared_from_this()](const Result<Remote::Regions>& regions) {
    if (!regions) return self->finish(regions.error());
    if (Status status = self->bind(*regions); !status.ok()) return self->finish(std::move(status));
    self->bound_ = true;
    self->launch();
  });
}

Status TransferRequest::bind(const Remote::Regions& regions) {
  if (batch_.valid()) return batch_.rebind(regions);
  std::vector<Copy> copies;
  copies.reserve(blocks_.blocks().size());
  for (const Blocks::Block& block : blocks_.blocks())
    copies.push_back({blocks_.locals()[block.local]->region, block.local_offset, regions[block.remote],
                      block.remote_offset, block.length_bytes});
  auto batch = remote_->peer().prepare(transfer_, copies);
  if (!batch) return std::move(batch).error();
  batch_ = *std::move(batch);
  blocks_.drop_blocks();
  return {};
}

void TransferRequest::launch() {
  if (abandoned_.load(std::memory_order_relaxed)) return finish(Status(Code::kCancelled, "released"));
  const Nanos timeout = bounds_.timeout == Nanos::zero() ? kNoTimeout : bounds_.timeout;
  Future<None> moving = batch_.post(PostOptions(timeout, bounds_.stall));
  {
    const MutexLock lock(mutex_);
    moving_ = moving;
  }
  // abandon() sets abandoned_ before it reads moving_. So either abandon() cancels this future, or
  // the check here sees abandoned_.
  Future<None> late = abandoned_.load(std::memory_order_relaxed) ? moving : Future<None>();
  std::move(moving).then(
      [self = shared_from_this()](const Result<None>& moved) { self->on_moved(moved.status()); });
  late.cancel();
}

void TransferRequest::on_moved(Status status) {
  if (status.code() == Code::kAborted && !retried_ && !abandoned_.load(std::memory_order_relaxed)) {
    // The regions belong to an earlier connection.
    retried_ = true;
    bound_ = false;
    remote_->forget(blocks_.remotes());
    return run();
  }
  if (!status.ok() || !notification_ || abandoned_.load(std::memory_order_relaxed))
    return finish(std::move(status));
  Status refused =
      remote_->notify(*std::exchange(notification_, std::nullopt),
                      [self = shared_from_this()](Status sent) { self->finish(std::move(sent)); });
  if (!refused.ok()) finish(std::move(refused));
}

void TransferRequest::finish(Status status) {
  if (status.ok() && measures_) remote_->measured(blocks_.length_bytes(), steady_clock().now() - began_);
  {
    const MutexLock lock(mutex_);
    moving_ = {};
    outcome_ = {std::move(status), true};
  }
  under_way_.store(false, std::memory_order_release);
}

std::optional<TransferRequest::Outcome> TransferRequest::check() {
  if (under_way_.load(std::memory_order_acquire)) {
    Future<None> moving;
    {
      const MutexLock lock(mutex_);
      moving = moving_;
    }
    static_cast<void>(moving.wait_done(limits::kCheckSpin));
    if (under_way_.load(std::memory_order_acquire)) return std::nullopt;
  }
  const MutexLock lock(mutex_);
  return Outcome{outcome_.status, std::exchange(outcome_.fresh, false)};
}

void TransferRequest::abandon() {
  abandoned_.store(true, std::memory_order_relaxed);
  Future<None> moving;
  {
    const MutexLock lock(mutex_);
    moving = moving_;
  }
  moving.cancel();
}

}  // namespace slime::nixl
