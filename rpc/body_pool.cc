#include "rpc/body_pool.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "rpc/limits.h"

namespace slime::rpc {
namespace {

struct Pool {
  Pool() { bodies.reserve(limits::kPooledBodies); }
  ~Pool();
  std::vector<ByteVector> bodies;
};

// What ends after the thread's own objects, such as an agent that is destroyed at exit, may still encode.
// This has no destructor, so it is there then.
thread_local bool over = false;

Pool::~Pool() { over = true; }

Pool* pool_of_thread() {
  if (over) return nullptr;
  thread_local Pool pool;
  return &pool;
}

// Of the whole process.
class LargeBodies {
 public:
  // One that is large enough, and not far larger; of several the one that came last, which may be in the
  // caches. Without memory: there is none.
  ByteVector take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto best = kept_.rend();
    for (auto at = kept_.rbegin(); at != kept_.rend(); ++at) {
      const std::size_t room = at->capacity();
      if (room < bytes || room / 2 > bytes || (best != kept_.rend() && room >= best->capacity())) continue;
      best = at;
      if (room - bytes <= bytes / 8) break;
    }
    if (best == kept_.rend()) return {};
    ByteVector out = std::move(*best);
    kept_.erase(std::next(best).base());
    bytes_ -= out.capacity();
    return out;
  }
  // The oldest go when there are too many; they are freed when the lock is not held.
  void give(ByteVector&& body) noexcept {
    std::vector<ByteVector> gone;
    body.clear();
    const std::lock_guard lock(mutex_);
    bytes_ += body.capacity();
    kept_.push_back(std::move(body));
    auto first = kept_.begin();
    for (; bytes_ > limits::kLargeBodiesBytes; ++first) bytes_ -= first->capacity();
    gone.assign(std::make_move_iterator(kept_.begin()), std::make_move_iterator(first));
    kept_.erase(kept_.begin(), first);
  }
  std::uint64_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  std::mutex mutex_;
  std::vector<ByteVector> kept_;
  std::uint64_t bytes_ = 0;
};

LargeBodies& large_bodies() {
  static constinit PerProcess<LargeBodies> all;
  return all.get();
}

}  // namespace

ByteVector take_body() {
  Pool* const pool = pool_of_thread();
  if (pool != nullptr && !pool->bodies.empty()) {
    ByteVector out = std::move(pool->bodies.back());
    pool->bodies.pop_back();
    return out;
  }
  ByteVector out;
  out.reserve(limits::kSmallBody);
  return out;
}

ByteVector take_body(std::size_t bytes) {
  if (bytes <= limits::kSmallBody) return take_body();
  ByteVector out;
  if (bytes >= limits::kLargeBody) out = large_bodies().take(bytes);
  out.reserve(bytes);
  return out;
}

void give_body(ByteVector&& body) noexcept {
  const std::size_t room = body.capacity();
  if (room > limits::kPooledBodyBytes) {
    if (room >= limits::kLargeBody && room <= limits::kLargeBodiesBytes) large_bodies().give(std::move(body));
    return;
  }
  if (room < limits::kSmallBody) return;
  Pool* const pool = pool_of_thread();
  if (pool == nullptr || pool->bodies.size() >= limits::kPooledBodies) return;
  body.clear();
  pool->bodies.push_back(std::move(body));
}

std::uint64_t kept_body_bytes() { return large_bodies().bytes(); }

}  // namespace slime::rpc
