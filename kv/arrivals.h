#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/future.h"
#include "base/mutex.h"
#include "base/result.h"
#include "kv/geometry.h"

namespace slime::kv {

// The layers of requests that peers have written into a cache. A layer is complete when every head
// of the cache's rank has arrived, from one writer or several. Thread: any.
class Arrivals {
 public:
  using Handler = std::function<void(std::uint32_t layer, std::uint64_t request)>;

  Arrivals(const Geometry& geometry, std::shared_ptr<Driver> driver)
      : geometry_(geometry), heads_(geometry.rank_heads()), driver_(std::move(driver)) {}

  // Notes heads of a layer. The numbers are a peer's: kInvalidArgument if the cache does not have
  // them. kResourceExhausted: the cache remembers kRequests requests already. Calls the handler in
  // this thread when the layer becomes complete.
  Status arrived(std::uint64_t request, std::uint32_t layer, Heads heads);
  // Waits until the layer is complete. kDeadlineExceeded; kCancelled after forget(); kUnavailable
  // after close().
  Status wait(std::uint64_t request, std::uint32_t layer, Nanos timeout);
  // Replaces the handler. The earlier one is not running when this returns. Not for handlers.
  void on_layer(Handler handler);
  void forget(std::uint64_t request);
  // Ends all waits, and refuses new ones. The handler is not running when this returns, and is
  // never called again. Not for handlers.
  void close();
  [[nodiscard]] Status check_open();

 private:
  struct Layer {
    bool complete = false;
    std::vector<bool> heads;  // arrived; empty: none
    // Made by the first wait. Completed when the layer is complete, forgotten or closed.
    std::shared_ptr<Promise<None>> waited;
    Future<None> done;
  };
  using Request = std::vector<Layer>;

  [[nodiscard]] Status check_layer(std::uint32_t layer) const;
  Result<Layer*> layer_of(std::uint64_t request, std::uint32_t layer) SLIME_REQUIRES(mutex_);

  const Geometry geometry_;
  const Heads heads_;
  const std::shared_ptr<Driver> driver_;
  Mutex mutex_;
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
  std::unordered_map<std::uint64_t, Request> requests_ SLIME_GUARDED_BY(mutex_);
  Mutex calling_;  // held while the handler runs; taken without mutex_
  Handler handler_ SLIME_GUARDED_BY(calling_);
};

}  // namespace slime::kv
