#pragma once

#include <doctest/doctest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "transport/loop.h"

// Goals and events for the tests of callers that drive a loop.
namespace slime::transport::testing {

inline TimePoint soon() { return steady_clock().now() + std::chrono::seconds(20); }

inline std::shared_ptr<Loop> start_loop() {
  auto loop = Loop::create();
  REQUIRE(loop.has_value());
  (*loop)->start_thread();
  return std::move(*loop);
}

// An event that a thread waits for, and may sleep for. The thread that reaches it may be its last
// owner.
class Goal {
 public:
  void reach() {
    const auto keep = reached_;
    *keep = true;
    keep->notify_all();
  }
  [[nodiscard]] bool reached() const { return *reached_; }
  void sleep() const { reached_->wait(false); }
  void wait(Loop& loop) const {
    loop.wait([this] { return reached(); }, soon(), [this] { sleep(); });
    CHECK(reached());
  }

 private:
  std::shared_ptr<std::atomic<bool>> reached_ = std::make_shared<std::atomic<bool>>(false);
};

// A descriptor that a test makes readable.
class Event final : public FdHandler {
 public:
  explicit Event(Loop& loop) : loop_(loop), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    loop_.run([this] { CHECK(loop_.watch(fd_.get(), EPOLLIN, *this).ok()); });
  }
  ~Event() {
    loop_.run([this] { loop_.unwatch(fd_.get()); });
  }
  void raise() const {
    const std::uint64_t one = 1;
    CHECK(::write(fd_.get(), &one, sizeof one) == sizeof one);
  }
  void on_fd_events(std::uint32_t) noexcept override {
    std::uint64_t count = 0;
    if (::read(fd_.get(), &count, sizeof count) != sizeof count) return;
    heard_by = std::this_thread::get_id();
    heard.fetch_add(1);
    heard.notify_all();
  }
  void wait_for(int count) {
    for (int now = heard.load(); now < count; now = heard.load()) heard.wait(now);
  }
  std::atomic<int> heard{0};
  std::thread::id heard_by;  // written before `heard`

 private:
  Loop& loop_;
  UniqueFd fd_;
};

}  // namespace slime::transport::testing
