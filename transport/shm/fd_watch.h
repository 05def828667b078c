#pragma once

#include <cstdint>
#include <utility>

#include "base/function.h"
#include "base/status.h"
#include "transport/loop.h"

namespace slime::transport::shm {

// Calls a function with the events of one descriptor, from start() to stop(). Thread: the loop.
class FdWatch final : private FdHandler {
 public:
  // `loop` outlives this.
  FdWatch(Loop& loop, UniqueFunction<void(std::uint32_t)> on_events)
      : loop_(loop), on_events_(std::move(on_events)) {}
  FdWatch(const FdWatch&) = delete;
  FdWatch& operator=(const FdWatch&) = delete;
  ~FdWatch() { stop(); }

  // `fd` stays open until stop().
  Status start(int fd, std::uint32_t events) {
    SLIME_TRY(loop_.watch(fd, events, *this));
    fd_ = fd;
    return {};
  }
  void stop() {
    if (active()) loop_.unwatch(std::exchange(fd_, -1));
  }
  [[nodiscard]] bool active() const { return fd_ >= 0; }

 private:
  void on_fd_events(std::uint32_t events) noexcept override { on_events_(events); }

  Loop& loop_;
  UniqueFunction<void(std::uint32_t)> on_events_;
  int fd_ = -1;
};

}  // namespace slime::transport::shm
