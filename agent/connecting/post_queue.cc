#include "agent/connecting/post_queue.h"

#include <algorithm>
#include <chrono>

#include "agent/limits.h"
#include "base/str.h"

namespace slime::agent {

Status PostQueue::try_post(const Post& post, transport::Operation& operation) {
  switch (post.kind) {
    case OneSided::kRead:
      return endpoint_.read(post.copies, operation);
    case OneSided::kWrite:
      return endpoint_.write(post.copies, operation);
    case OneSided::kWriteWithImm:
      return endpoint_.write_with_imm(post.copies, post.imm, operation);
    case OneSided::kFetchAdd:
      return endpoint_.fetch_add(post.target, post.value, operation);
    case OneSided::kCompareSwap:
      return endpoint_.compare_swap(post.target, post.expected, post.value, operation);
  }
  return Status(Code::kInternal, "an unknown one-sided operation");
}

void PostQueue::post(const Post& post, transport::Operation& operation) {
  if (!waiting_.empty()) return keep(post, operation);
  Status status = try_post(post, operation);
  if (status.ok()) return;
  if (status.code() == Code::kResourceExhausted) return keep(post, operation);
  operation.complete(std::move(status));
}

void PostQueue::keep(const Post& post, transport::Operation& operation) {
  if (waiting_.size() >= limits::kStalledOperations) {
    return operation.complete(Status(
        Code::kResourceExhausted, str(peer_, ": ", waiting_.size(), " one-sided operations wait already")));
  }
  transport::TimeBounds bounds;
  bounds.deadline = operation.deadline;
  bounds.posted_at = loop_.now();
  bounds.stall = operation.stall;
  Entry entry{.post = post, .operation = &operation, .bounds = bounds, .timer = {}};
  watch(waiting_.insert(waiting_.end(), entry), false);
}

// Arms the timer that ends a kept operation at its deadline or stall bound, as the endpoint would.
// `looked`: the stall bound has passed once already, and the loop has had a turn since, in which it
// could read progress that came while no thread drove the loop.
void PostQueue::watch(Place entry, bool looked) {
  const TimePoint due = std::max(entry->bounds.due(endpoint_.last_progress()), loop_.now());
  entry->timer = loop_.add_timer(due, [this, entry, looked] {
    entry->timer = {};
    const auto overdue = entry->bounds.overdue(loop_.now(), endpoint_.last_progress());
    const bool stalled = overdue == transport::Overdue::kStall;
    if (overdue == transport::Overdue::kNo || (stalled && !looked)) return watch(entry, stalled);
    const double stall_seconds = std::chrono::duration<double>(entry->bounds.stall).count();
    remove(entry).complete(
        stalled ? Status(Code::kDeadlineExceeded,
                         str(peer_, ": the connection took no more operations, and made no progress for ",
                             stall_seconds, " s"))
                : Status(Code::kDeadlineExceeded,
                         str(peer_, ": the connection took no more operations before the deadline")));
  });
}

transport::Operation& PostQueue::remove(Place entry) {
  transport::Operation& operation = *entry->operation;
  loop_.cancel_timer(entry->timer);
  waiting_.erase(entry);
  return operation;
}

bool PostQueue::withdraw(const transport::Operation& operation) {
  const auto entry = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Entry& each) { return each.operation == &operation; });
  if (entry == waiting_.end()) return false;
  remove(entry);
  return true;
}

void PostQueue::on_writable() {
  while (!waiting_.empty()) {
    Status status = try_post(waiting_.front().post, *waiting_.front().operation);
    if (status.code() == Code::kResourceExhausted) return;
    transport::Operation& operation = remove(waiting_.begin());
    if (!status.ok()) operation.complete(std::move(status));
  }
}

void PostQueue::fail_all(const Status& reason) {
  while (!waiting_.empty()) remove(waiting_.begin()).complete(reason);
}

}  // namespace slime::agent
