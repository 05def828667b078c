#include "kv/move.h"

#include <algorithm>

#include "base/str.h"
#include "kv/move_state.h"
#include "kv/outcome.h"

namespace slime::kv {

MoveProgress Move::progress() const { return state_ ? state_->progress() : MoveProgress{}; }

Move Move::failed(Status error) { return {nullptr, Future<None>::ready(std::move(error))}; }

Move::State::State(std::shared_ptr<Driver> driver, std::uint64_t its_layers, std::uint64_t its_bytes,
                   Nanos timeout)
    : start_(steady_clock().now()),
      deadline_(deadline_after(start_, timeout)),
      promise_(std::move(driver)),
      layers_(its_layers),
      bytes_(its_bytes) {}

void Move::State::expect(std::uint64_t layers, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  layers_ = layers;
  bytes_ = bytes;
}

void Move::State::moved(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  moved_ += bytes;
}

void Move::State::arrived(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  moved_ += bytes;
  ++succeeded_;
}

void Move::State::finish_layer(Status status) {
  Status error;
  {
    const MutexLock lock(mutex_);
    if (status.ok()) ++succeeded_;
    if (error_.ok()) error_ = std::move(status);
    if (++finished_ < layers_) return;
    end_ = steady_clock().now();
    error = error_;
  }
  promise_.complete(outcome_of(std::move(error)));
}

void Move::State::finish(Status status) {
  {
    const MutexLock lock(mutex_);
    end_ = steady_clock().now();
    error_ = status;
  }
  promise_.complete(outcome_of(std::move(status)));
}

bool Move::State::failed() const {
  const MutexLock lock(mutex_);
  return !error_.ok();
}

Nanos Move::State::left() const {
  if (deadline_ == kNever) return Nanos::max();
  return std::max<Nanos>(deadline_ - steady_clock().now(), std::chrono::milliseconds(1));
}

MoveProgress Move::State::progress() const {
  const MutexLock lock(mutex_);
  MoveProgress out{.bytes_done = moved_,
                   .bytes_total = bytes_,
                   .layers_done = static_cast<std::uint32_t>(succeeded_),
                   .layers_total = static_cast<std::uint32_t>(layers_),
                   .elapsed = end_.value_or(steady_clock().now()) - start_};
  const double seconds = std::chrono::duration<double>(out.elapsed).count();
  if (out.bytes_done > 0 && seconds > 0) {
    out.bytes_per_second = static_cast<double>(out.bytes_done) / seconds;
    out.left = to_nanos(static_cast<double>(out.bytes_total - out.bytes_done) / out.bytes_per_second);
  }
  return out;
}

std::shared_ptr<Notifier::Entry> Notifier::add(std::uint64_t request, std::shared_ptr<Move::State> move,
                                               std::uint32_t layer) {
  auto entry = std::make_shared<Entry>();
  entry->move = std::move(move);
  entry->layer = layer;
  const MutexLock lock(mutex_);
  queues_[request].entries.push_back(entry);
  return entry;
}

void Notifier::ended(std::uint64_t request, const std::shared_ptr<Entry>& entry, Status status) {
  MutexLock lock(mutex_);
  entry->ended = true;
  entry->status = std::move(status);
  Queue& queue = queues_[request];  // stays: it has entries or a thread that tells
  if (queue.telling) return;
  queue.telling = true;
  while (!queue.entries.empty() && queue.entries.front()->ended) {
    const std::shared_ptr<Entry> next = std::move(queue.entries.front());
    queue.entries.pop_front();
    lock.unlock();
    tell(request, *next);  // may run callbacks of the user, which may begin writes
    lock.lock();
  }
  queue.telling = false;
  if (queue.entries.empty()) queues_.erase(request);
}

void Notifier::tell(std::uint64_t request, Entry& entry) {
  const std::shared_ptr<Move::State> move = std::move(entry.move);
  if (!entry.status.ok()) return move->finish_layer(std::move(entry.status));
  if (move->failed())
    return move->finish_layer(
        Status(Code::kCancelled, str("layer ", entry.layer, ": an earlier one failed")));
  tell_(request, entry.layer, move->left(), [move, layer = entry.layer](Status status) {
    move->finish_layer(std::move(status).with_context(str("layer ", layer, ", telling the peer")));
  });
}

}  // namespace slime::kv
