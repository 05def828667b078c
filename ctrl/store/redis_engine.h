#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ctrl/store/command_queue.h"
#include "ctrl/store/engine.h"
#include "ctrl/store/redis_log.h"
#include "ctrl/store/replay.h"
#include "ctrl/store/snapshot_schedule.h"

namespace slime::ctrl {

// Shares one registry among all engines that use the same log in Redis (redis_log.h). submit()
// appends a command to the log and waits until the engine has read it back. Each engine applies all
// entries in order to its own registry (replay.h). Queries are answered locally, as are heartbeats
// that match the registry: one entry renews their leases, several times a second. Leases expire
// only through entries of the log.
//
// While Redis is unavailable, or its replies are invalid, commands are refused. Heartbeats are
// still answered for a third of a TTL, so that agents of an engine that alone is cut off can find
// another nanoctrl. If all engines are cut off, no lease expires, because no entry is appended.
class RedisEngine final : public Engine {
 public:
  // Connects to Redis and loads the log. Errors: kUnavailable, kUnauthenticated, kPermissionDenied;
  // kInvalidArgument when the log has other rules, such as another TTL after rounding to
  // milliseconds; kUnimplemented or kCorrupt when the log cannot be read.
  static Result<std::unique_ptr<Engine>> open(const std::string& url, RegistryOptions options,
                                              const Clock& clock, SnapshotPolicy policy = {});
  // ends the threads; takes at most seconds, even if Redis does not answer
  ~RedisEngine() override;

  Outcome submit(const Command& command) override;
  Nanos tick() override { return Nanos::max(); }  // the engine's threads tick
  [[nodiscard]] std::string describe() const override { return redis::to_string(address_); }
  [[nodiscard]] Status writable() const override;
  // Appends a tick to the log, unless an entry was appended within the last kReadyFor, and returns
  // whether that succeeded.
  [[nodiscard]] Status ready() override;

  // Returns the id of the last applied entry, and the number of entries since the log began.
  [[nodiscard]] std::pair<EntryId, std::uint64_t> position() const;

 private:
  // One thread of the engine. `wakes` is notified when the thread may have something to do;
  // `interrupt` breaks the thread's connection to Redis.
  struct Worker {
    CondVar wakes;
    redis::Interrupt interrupt;
    std::thread thread;
  };
  using Leases = std::map<std::pair<std::string, std::string>, std::uint64_t>;

  RedisEngine(redis::Address address, RegistryOptions options, const Clock& clock, SnapshotPolicy policy);
  void expire() override {}
  void start();

  // submit()
  std::optional<Outcome> answer_heartbeat(const HeartbeatCommand& command);
  Outcome wait_for(std::uint64_t number, CommandQueue::Waiter& waiter) SLIME_REQUIRES(mutex_);
  [[nodiscard]] Status refusal() const SLIME_REQUIRES(mutex_);
  EncodedEntry encode(std::uint64_t number, Command command) const;

  // Runs the reader thread, which follows the log. No other thread changes the registry.
  void run_reader();
  Status follow(bool first);
  Status resume(RedisLog& log);
  Status load(RedisLog& log, bool replaced = false);  // EarlierLog::replaced
  Status apply_batch(const RedisLog::Batch& batch);
  Status check(const RedisLog::Batch& batch) const;

  // Runs the writer thread, which appends the queued commands, renewals and ticks.
  void run_writer();
  void wait_for_work() SLIME_REQUIRES(mutex_);
  [[nodiscard]] TimePoint work_due() const SLIME_REQUIRES(mutex_);
  std::vector<EncodedEntry> take_work() SLIME_REQUIRES(mutex_);
  Result<redis::Connection> connect_again(redis::Interrupt& interrupt) const;
  Status append(std::optional<redis::Connection>& connection, const std::string& lineage,
                const std::vector<EncodedEntry>& entries);

  void run_snapshots();
  Status write_snapshot(Snapshot snapshot, std::uint64_t replaced, const RegistryState& state);

  // Reports a failure and ends the session. The reader connects again and finds its position in the
  // log; then the writer appends again.
  void disconnect(const Status& status) SLIME_REQUIRES(mutex_);

  const redis::Address address_;
  const LogKeys keys_;
  const std::string name_;  // this engine's name in the log

  Status failure_ SLIME_GUARDED_BY(mutex_);       // OK: everything works
  TimePoint failed_at_ SLIME_GUARDED_BY(mutex_);  // start of the current failure
  // number of the current session, in which the reader follows the log; 0: no session
  std::uint64_t session_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t sessions_ SLIME_GUARDED_BY(mutex_) = 0;  // number of the last session
  Nanos backoff_ SLIME_GUARDED_BY(mutex_){};
  bool stopping_ SLIME_GUARDED_BY(mutex_) = false;

  std::string lineage_ SLIME_GUARDED_BY(mutex_);
  Replay replay_ SLIME_GUARDED_BY(mutex_);
  // `head` of the last applied entry, which has the id replay_.at(); empty: unknown
  std::string last_head_ SLIME_GUARDED_BY(mutex_);
  // time by our clock when the last entry was applied
  TimePoint applied_at_ SLIME_GUARDED_BY(mutex_);
  SnapshotSchedule snapshots_ SLIME_GUARDED_BY(mutex_);

  CommandQueue commands_ SLIME_GUARDED_BY(mutex_);
  Leases renewals_ SLIME_GUARDED_BY(mutex_);  // from heartbeats answered locally
  TimePoint renewals_since_ SLIME_GUARDED_BY(mutex_);
  TimePoint appended_at_ SLIME_GUARDED_BY(mutex_);
  bool tick_asked_ SLIME_GUARDED_BY(mutex_) = false;  // by ready()
  TimePoint tick_asked_at_ SLIME_GUARDED_BY(mutex_);
  // percent that this engine's tick interval is longer, so that usually one engine ticks for all
  std::uint64_t tick_jitter_ = 0;

  // notified when an attempt has ended and failure_ has its result
  CondVar settled_;
  // declared last, because their threads use all members above
  Worker reader_, writer_, snapshotter_;
};

}  // namespace slime::ctrl
