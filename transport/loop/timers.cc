#include "transport/loop/timers.h"

namespace slime::transport {

TimerId Timers::add(TimePoint when, Task task) {
  const TimerId id{when, ++sequence_};
  const Key key(when, id.sequence);
  if (spares_.empty()) {
    timers_.emplace(key, std::move(task));
    return id;
  }
  Map::node_type node = std::move(spares_.back());
  spares_.pop_back();
  node.key() = key;
  node.mapped() = std::move(task);
  timers_.insert(std::move(node));
  return id;
}

Task Timers::take(Map::iterator timer) {
  Map::node_type node = timers_.extract(timer);
  Task task = std::move(node.mapped());
  node.mapped() = Task();
  if (spares_.size() < kMostSpares) spares_.push_back(std::move(node));
  return task;
}

void Timers::cancel(TimerId& id) {
  const auto timer = id ? timers_.find(Key(id.when, id.sequence)) : timers_.end();
  id = TimerId{};
  if (timer != timers_.end()) take(timer);
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
    Task task = take(it);
    task();
    ran = true;
  }
}

}  // namespace slime::transport
