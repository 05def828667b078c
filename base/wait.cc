#include "base/wait.h"

#include "base/limits.h"

namespace slime::detail {

void Ended::add(std::size_t number) {
  bool wake = false;
  {
    const MutexLock lock(mutex_);
    numbers_.push_back(number);
    if (wake_at_ != 0 && numbers_.size() >= wake_at_) {
      wake = true;
      wake_at_ = 0;  // the rest of the burst wakes no thread
    }
  }
  if (wake) changed_.notify_one();
}

std::size_t Ended::count() const {
  const MutexLock lock(mutex_);
  return numbers_.size();
}

std::size_t Ended::at(std::size_t position) const {
  const MutexLock lock(mutex_);
  return numbers_[position];
}

void Ended::sleep(std::size_t count, TimePoint deadline) {
  FutureCore::wake_sleepers();
  const MutexLock lock(mutex_);
  const auto ready = [this, count]() SLIME_REQUIRES(mutex_) {
    if (numbers_.size() >= count) return true;
    wake_at_ = count;
    return false;
  };
  if (deadline == kNever)
    changed_.wait(mutex_, ready);
  else
    changed_.wait_until(mutex_, deadline, ready);
  wake_at_ = 0;
}

void Drivers::add(std::shared_ptr<Driver> driver) {
  if (!driver) {
    some_without_ = true;
  } else if (std::find(all_.begin(), all_.end(), driver) == all_.end()) {
    all_.push_back(std::move(driver));
  }
}

void Drivers::wait(UniqueFunction<bool()> done, TimePoint deadline,
                   UniqueFunction<void(TimePoint)> sleep) const {
  if (all_.size() == 1 && !some_without_) {
    all_.front()->wait([&done] { return done(); }, deadline, [&sleep, deadline] { sleep(deadline); });
    return;
  }
  // Drives the drivers in turns. A driver that wants the thread to sleep has a thread of its own,
  // and gets no further turn.
  std::vector<Driver*> driven;
  for (const auto& each : all_) driven.push_back(each.get());
  while (!driven.empty()) {
    for (auto at = driven.begin(); at != driven.end();) {
      bool sleeps = false;
      const TimePoint until = std::min(deadline, deadline_after(steady_clock().now(), limits::kWaitTurn));
      (*at)->wait([&done] { return done(); }, until, [&sleeps] { sleeps = true; });
      if (done()) return;
      const TimePoint now = steady_clock().now();
      if (now >= deadline) return;
      if (!sleeps && now < until) return;  // in a forked child nothing drives its parent's loop
      at = sleeps ? driven.erase(at) : at + 1;
    }
  }
  sleep(deadline);
}

}  // namespace slime::detail
