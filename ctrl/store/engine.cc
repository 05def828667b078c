#include "ctrl/store/engine.h"

#include <algorithm>

#include "base/str.h"
#include "ctrl/store/redis_engine.h"
#include "ctrl/store/redis_url.h"
#include "ctrl/store/sqlite_engine.h"

namespace slime::ctrl {

Outcome Engine::apply(const Command& command, TimePoint now) {
  Outcome out = registry_.apply(command, now);
  tell(out);
  return out;
}

void Engine::tell(const Outcome& out) const {
  if (!on_event_) return;
  for (const ScopedEvent& event : out.events) on_event_(event);
}

void Engine::reset(Registry registry) {
  registry_ = std::move(registry);
  if (on_reset_) on_reset_();
}

Nanos Engine::tick() {
  const MutexLock lock(mutex_);
  expire();
  const TimePoint next = registry_.next_expiry();
  return next == kNever ? Nanos::max() : std::max(next - clock_.now(), Nanos::zero());
}

MemoryEngine::MemoryEngine(RegistryOptions options, const Clock& clock) : Engine(Registry(options), clock) {}

Outcome MemoryEngine::submit(const Command& command) {
  const MutexLock lock(mutex_);
  return apply(command, clock_.now());
}

void MemoryEngine::expire() { apply(TickCommand{}, clock_.now()); }

Result<std::unique_ptr<Engine>> open_engine(const std::string& store, RegistryOptions options,
                                            const Clock& clock) {
  SLIME_TRY(options.validate());
  if (store == "memory") return std::unique_ptr<Engine>(std::make_unique<MemoryEngine>(options, clock));
  if (store.starts_with(kSqliteScheme))
    return SqliteEngine::open(store.substr(kSqliteScheme.size()), options, clock);
  if (redis::is_url(store)) return RedisEngine::open(store, options, clock);
  return Status(
      Code::kInvalidArgument,
      str("'", store, "' is not a store: memory, sqlite:PATH, redis://host:port or rediss://host:port"));
}

}  // namespace slime::ctrl
