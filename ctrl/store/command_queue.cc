#include "ctrl/store/command_queue.h"

#include <algorithm>
#include <utility>

namespace slime::ctrl {
namespace {

constexpr std::size_t kQueueCount = 4096;
constexpr std::size_t kQueueBytes = std::size_t{64} << 20;
constexpr std::size_t kAppendCount = 512;
constexpr std::size_t kAppendBytes = std::size_t{4} << 20;

}  // namespace

Status CommandQueue::check_room() const {
  if (queue_.size() < kQueueCount && queue_bytes_ < kQueueBytes) return {};
  return {Code::kResourceExhausted, "too many changes wait for Redis"};
}

void CommandQueue::add(std::uint64_t number, EncodedEntry entry, Waiter& waiter) {
  waiters_.emplace(number, &waiter);
  queue_bytes_ += entry.size();
  queue_.push_back({number, std::move(entry)});
}

bool CommandQueue::remove(std::uint64_t number) {
  waiters_.erase(number);
  const auto queued = std::find_if(queue_.begin(), queue_.end(),
                                   [number](const Queued& entry) { return entry.number == number; });
  if (queued == queue_.end()) return false;
  queue_bytes_ -= queued->entry.size();
  queue_.erase(queued);
  return true;
}

void CommandQueue::take(std::vector<EncodedEntry>& out) {
  std::size_t bytes = 0;
  while (!queue_.empty() && out.size() < kAppendCount && bytes < kAppendBytes) {
    bytes += queue_.front().entry.size();
    queue_bytes_ -= queue_.front().entry.size();
    out.push_back(std::move(queue_.front().entry));
    queue_.pop_front();
  }
}

void CommandQueue::finish(std::uint64_t number, Outcome outcome) {
  const auto it = waiters_.find(number);
  if (it == waiters_.end()) return;
  it->second->outcome = std::move(outcome);
  it->second->done.notify_one();
  waiters_.erase(it);
}

void CommandQueue::fail_all(const Status& status) {
  const auto outcome = [&status](bool maybe_executed) {
    Outcome out;
    out.status = Status(status).with_maybe_executed(maybe_executed);
    return out;
  };
  for (const Queued& queued : queue_) finish(queued.number, outcome(false));
  queue_.clear();
  queue_bytes_ = 0;
  while (!waiters_.empty()) finish(waiters_.begin()->first, outcome(true));
}

}  // namespace slime::ctrl
