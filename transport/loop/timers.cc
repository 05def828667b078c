#include "transport/loop/timers.h"

namespace slime::transport {

TimerId Timers::add(TimePoint when, Task task) {
  const TimerId id{when, ++sequence_};
  timers_.emplace(Key(when, id.sequence), std::move(task));
  return id;
}

void Timers::cancel(TimerId& id) {
  if (id) timers_.erase(Key(id.when, id.sequence));
  id = TimerId{};
}

bool Timers::run_due(TimePoint now) {
  if (next() > now) return false;
  bool ran = false;
  // Skips timers that tasks add meanwhile: a timer that adds itself again in the past must not
  // starve the others. Remembers the last key, not an iterator, because tasks may add and cancel
  // timers.
  const std::uint64_t newest = sequence_;
  Key last{TimePoint::min(), 0};
  for (;;) {
    auto it = timers_.upper_bound(last);
    while (it != timers_.end() && it->first.second > newest) ++it;
    if (it == timers_.end() || it->first.first > now) return ran;
    last = it->first;
    Task task = std::move(it->second);
    timers_.erase(it);
    task();
    ran = true;
  }
}

}  // namespace slime::transport
