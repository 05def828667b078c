#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/registry/registry.h"

namespace slime::ctrl {

inline constexpr Nanos kReadyFor = std::chrono::seconds(1);
inline constexpr Nanos kReadyRetry = std::chrono::milliseconds(500);
inline constexpr Nanos kReadyWait = std::chrono::seconds(1);

// The registry with a place where its changes are kept. A command that was answered with success is kept:
// whatever dies after that, it is there again. Heartbeats are not kept, since a lease starts anew when the
// server does. Thread: any.
class Engine {
 public:
  // Each change, in order. Called under the lock: short, and nothing of the engine.
  using EventHandler = std::function<void(const ScopedEvent&)>;

  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs the command after all earlier ones, and waits until what it did is kept. kUnavailable when it cannot
  // be: then it may have had its effect (maybe_executed()) and is lost with this process, or had none.
  virtual Outcome submit(const Command& command) = 0;
  // `read(const Registry&)` with nothing in it that has expired.
  template <class Read>
  auto read(const Read& read) {
    const std::lock_guard lock(mutex_);
    expire();
    return read(std::as_const(registry_));
  }
  // The same as of the last command, for what does not expire.
  template <class Read>
  auto look(const Read& read) const {
    const std::lock_guard lock(mutex_);
    return read(registry_);
  }
  // Expires what is due. Returns how long until something may be due again.
  virtual Nanos tick();
  // Where it is kept, for people: "memory", "sqlite:/var/lib/slime/nanoctrl.db".
  [[nodiscard]] virtual std::string describe() const = 0;
  // OK, or why changes are refused now.
  [[nodiscard]] virtual Status writable() const { return {}; }
  // OK, or why a change would not be kept now. Asks the store unless it was asked within kReadyFor (within
  // kReadyRetry after a failure), and waits for its answer for at most kReadyWait. Never needs a command.
  [[nodiscard]] virtual Status ready() { return writable(); }

  // Before anything else is called.
  void on_event(EventHandler handler) {
    const std::lock_guard lock(mutex_);
    on_event_ = std::move(handler);
  }
  // The registry is another one now, with numbers that go on from the old one's: who watches lists the peers
  // again. Called like an event, and set like its handler.
  void on_reset(std::function<void()> handler) {
    const std::lock_guard lock(mutex_);
    on_reset_ = std::move(handler);
  }
  [[nodiscard]] std::uint64_t epoch() const {
    const std::lock_guard lock(mutex_);
    return registry_.options().epoch;
  }

 protected:
  Engine(Registry registry, const Clock& clock) : clock_(clock), registry_(std::move(registry)) {}
  // Under the lock.
  virtual void expire() = 0;
  Outcome apply(const Command& command, TimePoint now);
  void tell(const Outcome& out) const;  // its events
  void reset(Registry registry);

  const Clock& clock_;
  mutable std::mutex mutex_;
  Registry registry_;

 private:
  EventHandler on_event_;
  std::function<void()> on_reset_;
};

inline constexpr std::string_view kSqliteScheme = "sqlite:";

// Keeps nothing: after a restart the registry is empty until the agents' next heartbeats.
class MemoryEngine final : public Engine {
 public:
  // `clock` outlives it.
  MemoryEngine(RegistryOptions options, const Clock& clock);
  Outcome submit(const Command& command) override;
  [[nodiscard]] std::string describe() const override { return "memory"; }

 private:
  void expire() override;
};

// `store`: "memory", "sqlite:PATH" or "redis://..." (store/redis_url.h).
// `options.epoch` is the time of this start. kInvalidArgument for another; else what the store says.
Result<std::unique_ptr<Engine>> open_engine(const std::string& store, RegistryOptions options,
                                            const Clock& clock);

}  // namespace slime::ctrl
