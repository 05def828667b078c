#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "ctrl/registry/registry.h"

namespace slime::ctrl {

inline constexpr Nanos kReadyFor = std::chrono::seconds(1);
inline constexpr Nanos kReadyRetry = std::chrono::milliseconds(500);
inline constexpr Nanos kReadyWait = std::chrono::seconds(1);

// The registry together with its store. When submit() reports success, the change is stored and
// survives a crash. Heartbeats are not stored, because a restart gives every lease a full TTL.
// Thread: any.
class Engine {
 public:
  // Called for each change of the registry, in order, under the lock. Must be fast, and must not
  // call the engine.
  using EventHandler = std::function<void(const ScopedEvent&)>;

  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs the command after all earlier commands, and waits until its changes are stored.
  // kUnavailable when they cannot be stored: with maybe_executed(), the command may have had its
  // effect, which a restart may lose; else it had none.
  virtual Outcome submit(const Command& command) = 0;
  // Expires leases, then calls `read(const Registry&)` under the lock and returns its result.
  template <class Read>
  auto read(const Read& read) {
    const MutexLock lock(mutex_);
    expire();
    return read(std::as_const(registry_));
  }
  // Like read(), but does not expire leases first. For state that does not depend on leases.
  template <class Read>
  auto look(const Read& read) const {
    const MutexLock lock(mutex_);
    return read(registry_);
  }
  // Expires leases that have ended. Returns the time until tick() should be called again.
  virtual Nanos tick();
  // The store's name, for people: "memory", "sqlite:/var/lib/slime/nanoctrl.db".
  [[nodiscard]] virtual std::string describe() const = 0;
  // Returns OK, or the reason why the engine refuses changes now. Does not ask the store.
  [[nodiscard]] virtual Status writable() const { return {}; }
  // Returns OK, or the reason why a change could not be stored now. Asks the store, for at most
  // kReadyWait, unless the last answer is younger than kReadyFor (kReadyRetry after a failure). The
  // answer does not depend on commands from clients.
  [[nodiscard]] virtual Status ready() { return writable(); }

  // Call before any other function.
  void on_event(EventHandler handler) {
    const MutexLock lock(mutex_);
    on_event_ = std::move(handler);
  }
  // `handler` is called when another registry has replaced the engine's registry. The new registry
  // continues the numbers of the old one; watchers must list the peers again. Must be fast, and
  // must not call the engine.
  void on_reset(std::function<void()> handler) {
    const MutexLock lock(mutex_);
    on_reset_ = std::move(handler);
  }
  [[nodiscard]] std::uint64_t epoch() const {
    const MutexLock lock(mutex_);
    return registry_.options().epoch;
  }

 protected:
  Engine(Registry registry, const Clock& clock) : clock_(clock), registry_(std::move(registry)) {}
  virtual void expire() SLIME_REQUIRES(mutex_) = 0;
  Outcome apply(const Command& command, TimePoint now) SLIME_REQUIRES(mutex_);
  void tell(const Outcome& out) const SLIME_REQUIRES(mutex_);  // passes its events to the handler
  void reset(Registry registry) SLIME_REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  Registry registry_ SLIME_GUARDED_BY(mutex_);

 private:
  EventHandler on_event_ SLIME_GUARDED_BY(mutex_);
  std::function<void()> on_reset_ SLIME_GUARDED_BY(mutex_);
};

inline constexpr std::string_view kSqliteScheme = "sqlite:";

// An engine that stores nothing. After a restart the registry is empty, until agents register again
// because their heartbeats get 404.
class MemoryEngine final : public Engine {
 public:
  // `clock` outlives this.
  MemoryEngine(RegistryOptions options, const Clock& clock);
  Outcome submit(const Command& command) override;
  [[nodiscard]] std::string describe() const override { return "memory"; }

 private:
  void expire() override SLIME_REQUIRES(mutex_);
};

// Opens the engine for `store`: "memory", "sqlite:PATH" or "redis://..." (store/redis_url.h).
// `options.epoch` is the time of this start. kInvalidArgument for another text; other errors come
// from the store.
Result<std::unique_ptr<Engine>> open_engine(const std::string& store, RegistryOptions options,
                                            const Clock& clock);

}  // namespace slime::ctrl
