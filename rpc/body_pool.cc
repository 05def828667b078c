#include "rpc/body_pool.h"

#include <utility>
#include <vector>

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

void give_body(ByteVector&& body) noexcept {
  if (body.capacity() < limits::kSmallBody || body.capacity() > limits::kPooledBodyBytes) return;
  Pool* const pool = pool_of_thread();
  if (pool == nullptr || pool->bodies.size() >= limits::kPooledBodies) return;
  body.clear();
  pool->bodies.push_back(std::move(body));
}

}  // namespace slime::rpc
