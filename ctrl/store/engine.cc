#include "ctrl/store/engine.h"

#include <algorithm>

#include "base/str.h"
#include "ctrl/store/sqlite_engine.h"

namespace slime::ctrl {

Outcome Engine::apply(const Command& command, TimePoint now) {
  Outcome out = registry_.apply(command, now);
  if (on_event_) {
    for (const ScopedEvent& event : out.events) on_event_(event);
  }
  return out;
}

Nanos Engine::tick() {
  const std::lock_guard lock(mutex_);
  expire();
  const TimePoint next = registry_.next_expiry();
  return next == kNever ? Nanos::max() : std::max(next - clock_.now(), Nanos::zero());
}

MemoryEngine::MemoryEngine(RegistryOptions options, const Clock& clock) : Engine(Registry(options), clock) {}

Outcome MemoryEngine::submit(const Command& command) {
  const std::lock_guard lock(mutex_);
  return apply(command, clock_.now());
}

void MemoryEngine::expire() { apply(TickCommand{}, clock_.now()); }

Result<std::unique_ptr<Engine>> open_engine(const std::string& store, RegistryOptions options,
                                            const Clock& clock) {
  SLIME_TRY(options.validate());
  constexpr std::string_view kSqlite = "sqlite:";
  if (store == "memory") return std::unique_ptr<Engine>(std::make_unique<MemoryEngine>(options, clock));
  if (store.starts_with(kSqlite)) return SqliteEngine::open(store.substr(kSqlite.size()), options, clock);
  return Status(Code::kInvalidArgument, str("'", store, "' is not a store: memory or sqlite:PATH"));
}

}  // namespace slime::ctrl
