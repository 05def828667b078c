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

// The registry and its store. A command answered with success is stored: it survives any crash
// after that. Heartbeats are not stored, since every lease starts anew when the server restarts.
// Thread: any.
class Engine {
 public:
  // Receives each change, in order. Called under the lock: must be short, and must not call the
  // engine.
  using EventHandler = std::function<void(const ScopedEvent&)>;

  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs the command after all earlier commands, and waits until its changes are stored.
  // kUnavailable when they cannot be: the command either had its effect (maybe_executed()), which
  // is lost with this process, or had none.
  virtual Outcome submit(const Command& command) = 0;
  // Calls `read(const Registry&)` under the lock, after expiring leases.
  template <class Read>
  auto read(const Read& read) {
    const MutexLock lock(mutex_);
    expire();
    return read(std::as_const(registry_));
  }
  // Like read(), but without expiring leases: for state that does not expire.
  template <class Read>
  auto look(const Read& read) const {
    const MutexLock lock(mutex_);
    return read(registry_);
  }
  // Expires due leases. Returns the time until something may be due again.
  virtual Nanos tick();
  // The store's name, for people: "memory", "sqlite:/var/lib/slime/nanoctrl.db".
  [[nodiscard]] virtual std::string describe() const = 0;
  // OK, or the reason why changes are refused now.
  [[nodiscard]] virtual Status writable() const { return {}; }
  // OK, or the reason why a change would not be stored now. Asks the store unless it was asked
  // within kReadyFor (kReadyRetry after a failure), and waits for at most kReadyWait. Needs no
  // command.
  [[nodiscard]] virtual Status ready() { return writable(); }

  // Call before any other function.
  void on_event(EventHandler handler) {
    const MutexLock lock(mutex_);
    on_event_ = std::move(handler);
  }
  // Called when another registry replaced this one; its numbers continue from the old registry's,
  // and watchers list the peers again. Same rules as for the event handler.
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

// Stores nothing: after a restart the registry is empty until the agents' next heartbeats.
class MemoryEngine final : public Engine {
 public:
  // `clock` outlives this.
  MemoryEngine(RegistryOptions options, const Clock& clock);
  Outcome submit(const Command& command) override;
  [[nodiscard]] std::string describe() const override { return "memory"; }

 private:
  void expire() override SLIME_REQUIRES(mutex_);
};

// Opens "memory", "sqlite:PATH" or "redis://..." (store/redis_url.h). `options.epoch` is the time
// of this start. kInvalidArgument for any other `store`; else the store's errors.
Result<std::unique_ptr<Engine>> open_engine(const std::string& store, RegistryOptions options,
                                            const Clock& clock);

}  // namespace slime::ctrl
