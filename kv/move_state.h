#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/clock.h"
#include "base/future.h"
#include "base/mutex.h"
#include "base/status.h"
#include "kv/move.h"

namespace slime::kv {

// The state of a Move, which has parts: layers, chunks of a fetch, or operations of a gather.
// Thread: any.
struct Move::State {
  State(std::shared_ptr<Driver> driver, std::uint64_t its_layers, std::uint64_t its_bytes, Nanos timeout);

  // Sets the numbers of a Move that began without them. Call before the first part ends.
  void expect(std::uint64_t layers, std::uint64_t bytes);
  // Notes that the bytes of one part have arrived.
  void moved(std::uint64_t bytes);
  // Notes that a part has arrived, of a Move that finish() ends.
  void arrived(std::uint64_t bytes);
  // Ends one part. The last one completes the future with the first error.
  void finish_layer(Status status);
  // Completes the future of a Move whose parts end all together.
  void finish(Status status);
  [[nodiscard]] bool failed() const;
  // Returns the time until the deadline, at least a millisecond.
  [[nodiscard]] Nanos left() const;
  [[nodiscard]] MoveProgress progress() const;
  // Call once; copies of the future share the outcome.
  [[nodiscard]] Future<None> future() const { return promise_.future(); }

 private:
  const TimePoint start_;
  const TimePoint deadline_;
  Promise<None> promise_;
  mutable Mutex mutex_;
  std::uint64_t layers_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t bytes_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t moved_ SLIME_GUARDED_BY(mutex_) = 0;  // bytes
  std::uint64_t succeeded_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t finished_ SLIME_GUARDED_BY(mutex_) = 0;
  std::optional<TimePoint> end_ SLIME_GUARDED_BY(mutex_);
  Status error_ SLIME_GUARDED_BY(mutex_);
};

// Tells the peer of layers that have arrived, for each request in the order in which their writes
// were begun. Thread: any.
class Notifier : public std::enable_shared_from_this<Notifier> {
 public:
  // Starts the call that tells the peer of a layer, and calls `done` with its outcome.
  using Tell = std::function<void(std::uint64_t request, std::uint32_t layer, Nanos timeout,
                                  std::function<void(Status)> done)>;
  explicit Notifier(Tell tell) : tell_(std::move(tell)) {}

  struct Entry {
    std::shared_ptr<Move::State> move;
    std::uint32_t layer = 0;
    bool ended = false;  // the write has ended
    Status status{};     // of the write
  };
  // Appends a layer whose write begins.
  std::shared_ptr<Entry> add(std::uint64_t request, std::shared_ptr<Move::State> move, std::uint32_t layer);
  // Notes the end of the layer's write. Tells the peer of all layers whose turn has come, unless a
  // layer of the same Move has failed.
  void ended(std::uint64_t request, const std::shared_ptr<Entry>& entry, Status status);

 private:
  struct Queue {
    std::deque<std::shared_ptr<Entry>> entries;
    bool telling = false;  // a thread is in ended(), which takes further entries, too
  };
  void tell(std::uint64_t request, Entry& entry);

  const Tell tell_;
  Mutex mutex_;
  std::unordered_map<std::uint64_t, Queue> queues_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::kv
