#include "rpc/codec/idle_memory.h"

#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/fork.h"
#include "base/function.h"
#include "base/mutex.h"
#include "base/reaper.h"
#include "rpc/codec/body_pool.h"
#include "rpc/codec/received.h"
#include "rpc/limits.h"

namespace slime::rpc {
namespace {

// Memory that was kept, and is to be freed. The destructor frees it.
struct Unused {
  Unused() = default;
  Unused(Unused&&) noexcept = default;
  Unused& operator=(Unused&&) = delete;
  ~Unused() {
    for (ByteVector& each : bodies) free_pages(std::move(each));
    for (const MutableBytes each : received) unmap_received(each);
  }
  [[nodiscard]] bool empty() const { return bodies.empty() && received.empty(); }

  std::vector<ByteVector> bodies;
  std::vector<MutableBytes> received;
};

class IdleMemory {
 public:
  bool sweep(const void* connection, TimePoint now) {
    const MutexLock lock(mutex_);
    // The loop of a connection that does not sweep in time has no thread that drives it.
    const bool stuck = now - swept_ > 2 * limits::kBlocksIdle || now < swept_;
    if (sweeper_ != nullptr && sweeper_ != connection && !stuck) return true;
    swept_ = now;
    Unused unused;
    take_unused_bodies(unused.bodies);
    take_unused_received(unused.received);
    if (!unused.empty()) {
      Task task = [gone = std::move(unused)] {};
      // Frees the memory here if no thread can be started.
      static_cast<void>(try_reap(task));
    }
    const bool any = kept_body_bytes() + kept_received_bytes() + used_received_bytes() > 0;
    sweeper_ = any ? connection : nullptr;
    return sweeper_ != nullptr;
  }
  void stop(const void* connection) {
    const MutexLock lock(mutex_);
    if (sweeper_ == connection) sweeper_ = nullptr;
  }

 private:
  Mutex mutex_;
  const void* sweeper_ SLIME_GUARDED_BY(mutex_) = nullptr;  // the connection that sweeps; null: none
  TimePoint swept_ SLIME_GUARDED_BY(mutex_){};
};

IdleMemory& idle_memory() {
  static constinit PerProcess<IdleMemory> all;
  return all.get();
}

}  // namespace

bool sweep_idle_memory(const void* connection, TimePoint now) { return idle_memory().sweep(connection, now); }

void stop_sweeping(const void* connection) noexcept { idle_memory().stop(connection); }

}  // namespace slime::rpc
