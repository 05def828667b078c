#include "rpc/codec/body_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "base/mutex.h"
#include "rpc/codec/received.h"
#include "rpc/limits.h"

namespace slime::rpc {
namespace {

struct Pool {
  Pool() { bodies.reserve(limits::kPooledBodies); }
  ~Pool();
  std::vector<ByteVector> bodies;
};

// True once the thread's pool is destroyed. The flag has no destructor, so it can still be read
// then: objects that are destroyed later, such as an agent at exit, may still encode.
thread_local bool over = false;

Pool::~Pool() { over = true; }

Pool* pool_of_thread() {
  if (over) return nullptr;
  thread_local Pool pool;
  return &pool;
}

// Capacities of large bodies that this file makes: kOffPage bytes below a multiple of a page. A
// body for some bytes, and one for these bytes with what encoding adds, so have the same capacity.
constexpr std::size_t kPage = 4096;
constexpr std::size_t kOffPage = 32;
std::size_t large_capacity(std::size_t bytes) {
  return (bytes + kOffPage + kPage - 1) / kPage * kPage - kOffPage;
}
bool is_large_capacity(std::size_t room) { return (room + kOffPage) % kPage == 0; }

// Large bodies of the process. Keeps only bodies that this file has made. Results of handlers come
// from malloc(), and would otherwise fill the bound: malloc() hands the memory that one result had
// out for the next, while it is in the CPU caches.
class LargeBodies {
 public:
  LargeBodies() { kept_.reserve(limits::kLargeBodiesBytes / limits::kLargeBody); }
  // Returns a kept body that is large enough, but not far larger; of several such bodies the
  // newest, which may still be in the CPU caches. Returns a body without capacity if there is none.
  ByteVector take(std::size_t bytes) {
    const MutexLock lock(mutex_);
    auto best = kept_.rend();
    for (auto at = kept_.rbegin(); at != kept_.rend(); ++at) {
      const std::size_t room = at->body.capacity();
      if (room < bytes || room / 2 > bytes || (best != kept_.rend() && room >= best->body.capacity()))
        continue;
      best = at;
      if (room - bytes <= bytes / 8) break;
    }
    if (best == kept_.rend()) return {};
    ByteVector out = std::move(best->body);
    kept_.erase(std::next(best).base());
    bytes_ -= out.capacity();
    return out;
  }
  // Keeps the body. Drops the oldest bodies if too many bytes are kept.
  void give(ByteVector&& body) noexcept {
    body.clear();
    while (!keep(body)) drop_oldest();
  }
  // Moves the bodies that were given before the last call into `out`.
  void take_unused(std::vector<ByteVector>& out) {
    const MutexLock lock(mutex_);
    std::erase_if(kept_, [&](Kept& each) SLIME_REQUIRES(mutex_) {
      if (std::exchange(each.fresh, false)) return false;
      bytes_ -= each.body.capacity();
      out.push_back(std::move(each.body));
      return true;
    });
  }
  std::uint64_t bytes() {
    const MutexLock lock(mutex_);
    return bytes_;
  }

 private:
  struct Kept {
    ByteVector body;
    bool fresh = true;  // given since the last take_unused()
  };
  bool keep(ByteVector& body) {
    const MutexLock lock(mutex_);
    if (bytes_ + body.capacity() > limits::kLargeBodiesBytes) return false;
    bytes_ += body.capacity();
    kept_.push_back({std::move(body)});  // does not allocate: reserved
    return true;
  }
  void drop_oldest() {
    ByteVector gone;  // freed after the lock
    const MutexLock lock(mutex_);
    if (kept_.empty()) return;
    gone = std::move(kept_.front().body);
    kept_.erase(kept_.begin());
    bytes_ -= gone.capacity();
  }

  Mutex mutex_;
  std::vector<Kept> kept_ SLIME_GUARDED_BY(mutex_);  // the oldest first
  std::uint64_t bytes_ SLIME_GUARDED_BY(mutex_) = 0;
};

LargeBodies& large_bodies() {
  static constinit PerProcess<LargeBodies> all;
  return all.get();
}

// Asks the kernel for huge pages for a large body: page faults for each 4 KiB of fresh memory take
// longer than copying the bytes.
void wish_for_huge_pages(ByteVector& body) {
  const auto begin = reinterpret_cast<std::uintptr_t>(body.data());
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t end = (begin + body.capacity()) / kHugePage * kHugePage;
  if (first < end) ::madvise(body.data() + (first - begin), end - first, MADV_HUGEPAGE);
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
  if (out.capacity() >= bytes) return out;
  out.reserve(bytes >= limits::kLargeBody ? large_capacity(bytes) : bytes);
  wish_for_huge_pages(out);
  return out;
}

void give_body(ByteVector&& body) noexcept {
  const std::size_t room = body.capacity();
  if (room > limits::kPooledBodyBytes) {
    if (room >= limits::kLargeBody && room <= limits::kLargeBodiesBytes && is_large_capacity(room))
      large_bodies().give(std::move(body));
    return;
  }
  if (room < limits::kSmallBody) return;
  Pool* const pool = pool_of_thread();
  if (pool == nullptr || pool->bodies.size() >= limits::kPooledBodies) return;
  body.clear();
  pool->bodies.push_back(std::move(body));
}

void take_unused_bodies(std::vector<ByteVector>& out) { large_bodies().take_unused(out); }

void free_pages(ByteVector&& body) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(body.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t end = (begin + body.capacity()) / page * page;
  if (first < end) ::madvise(body.data() + (first - begin), end - first, MADV_DONTNEED);
  ByteVector().swap(body);
}

std::uint64_t kept_body_bytes() { return large_bodies().bytes(); }

}  // namespace slime::rpc
