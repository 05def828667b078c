#include "agent/memory/first_use.h"

#include <utility>

#include "agent/limits.h"
#include "base/clock.h"
#include "base/log.h"

namespace slime::agent {

void FirstUse::use(std::size_t device, Ready ready) {
  if (devices_.use(device)) begin(device);
  const auto at = waiting_.find(device);
  if (at == waiting_.end()) return ready();
  at->second.push_back(std::move(ready));
}

void FirstUse::begin(std::size_t device) {
  // Weak: a region that its user drops meanwhile ends with its user, as always.
  std::vector<std::weak_ptr<MemoryRegion::State>> regions;
  for (const RegionState& region : regions_.all()) regions.push_back(region);
  if (regions.empty()) return;
  SLIME_LOG(LogLevel::kInfo, "agent", "registers ", regions.size(), " regions with ", devices_.name(device),
            " for its first connection");
  waiting_.try_emplace(device);
  Task work = [self = weak_from_this(), loop = loop_.weak_from_this(), closed = closed_,
               regions = std::move(regions), device] {
    for (const auto& region : regions) {
      if (closed->load()) break;
      if (const RegionState alive = region.lock()) alive->complete();
    }
    if (const auto still = loop.lock()) {
      still->post([self, device] {
        if (const auto alive = self.lock()) alive->done(device);
      });
    }
  };
  start(device, std::move(work));
}

void FirstUse::start(std::size_t device, Task work) {
  if (start_thread_(work)) return;
  if (!std::exchange(warned_, true))
    SLIME_LOG(LogLevel::kWarning, "agent", "connections over ", devices_.name(device),
              " wait: no thread can be started now that registers memory");
  const TimePoint when = deadline_after(loop_.now(), limits::kStartThreadPause);
  loop_.add_timer(when, [self = weak_from_this(), device, work = std::move(work)]() mutable {
    const auto alive = self.lock();
    if (alive && alive->waiting_.contains(device)) alive->start(device, std::move(work));
  });
}

void FirstUse::done(std::size_t device) {
  auto ready = waiting_.extract(device);
  if (ready.empty()) return;  // closed
  for (Ready& each : ready.mapped()) each();
}

}  // namespace slime::agent
