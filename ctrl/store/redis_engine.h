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

// Shares one registry with all engines on the same log in Redis (redis_log.h). Commands are
// appended to the log; each engine applies all entries in order to its own registry (replay.h), and
// submit() waits until its own entry has come back. Queries, and heartbeats that match the
// registry, are answered locally; one entry renews the leases of many heartbeats, several times a
// second. Leases expire only by log entries.
//
// When Redis is unavailable, or its replies are invalid, commands are refused until it is back.
// Heartbeats are answered for another third of a TTL: if only this engine is cut off, agents need
// that time to find another nanoctrl; if all are, no lease expires meanwhile.
class RedisEngine final : public Engine {
 public:
  // kUnavailable, kUnauthenticated, kPermissionDenied; kInvalidArgument when the log has other
  // rules, such as another TTL (rounded to milliseconds); kUnimplemented or kCorrupt for a log that
  // cannot be read.
  static Result<std::unique_ptr<Engine>> open(const std::string& url, RegistryOptions options,
                                              const Clock& clock, SnapshotPolicy policy = {});
  ~RedisEngine() override;  // takes seconds at most, also when Redis does not answer

  Outcome submit(const Command& command) override;
  Nanos tick() override { return Nanos::max(); }  // the engine's threads tick
  [[nodiscard]] std::string describe() const override { return redis::to_string(address_); }
  [[nodiscard]] Status writable() const override;
  // Appends a tick, unless something was appended within kReadyFor.
  [[nodiscard]] Status ready() override;

  // The position in the log: the last applied entry, and the number of entries.
  [[nodiscard]] std::pair<EntryId, std::uint64_t> position() const;

 private:
  // One thread of the engine. `wakes` is notified when the state that the thread waits for may have
  // changed; `interrupt` breaks its connection.
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

  // The reader thread: the only thread that changes the registry.
  void run_reader();
  Status follow(bool first);
  Status resume(RedisLog& log);
  Status load(RedisLog& log, bool replaced = false);  // EarlierLog::replaced
  Status apply_batch(const RedisLog::Batch& batch);
  Status check(const RedisLog::Batch& batch) const;

  // The writer thread: appends queued commands, renewals and ticks.
  void run_writer();
  void wait_for_work() SLIME_REQUIRES(mutex_);
  [[nodiscard]] TimePoint work_due() const SLIME_REQUIRES(mutex_);
  std::vector<EncodedEntry> take_work() SLIME_REQUIRES(mutex_);
  Result<redis::Connection> connect_again(redis::Interrupt& interrupt) const;
  Status append(std::optional<redis::Connection>& connection, const std::string& lineage,
                const std::vector<EncodedEntry>& entries);

  void run_snapshots();
  Status write_snapshot(Snapshot snapshot, std::uint64_t replaced, const RegistryState& state);

  // Restarts both threads: the reader finds its position in the log, then the writer appends again.
  void disconnect(const Status& status) SLIME_REQUIRES(mutex_);

  const redis::Address address_;
  const LogKeys keys_;
  const std::string name_;  // this engine's name in the log

  Status failure_ SLIME_GUARDED_BY(mutex_);       // OK: everything works
  TimePoint failed_at_ SLIME_GUARDED_BY(mutex_);  // start of the current failure
  // of the reader that follows the log now; 0: none
  std::uint64_t session_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t sessions_ SLIME_GUARDED_BY(mutex_) = 0;  // number of the last session
  Nanos backoff_ SLIME_GUARDED_BY(mutex_){};
  bool stopping_ SLIME_GUARDED_BY(mutex_) = false;

  std::string lineage_ SLIME_GUARDED_BY(mutex_);
  Replay replay_ SLIME_GUARDED_BY(mutex_);
  // head of the entry at replay_.at(); empty: unknown
  std::string last_head_ SLIME_GUARDED_BY(mutex_);
  TimePoint applied_at_ SLIME_GUARDED_BY(mutex_);  // when that entry was applied, by our clock
  SnapshotSchedule snapshots_ SLIME_GUARDED_BY(mutex_);

  CommandQueue commands_ SLIME_GUARDED_BY(mutex_);
  Leases renewals_ SLIME_GUARDED_BY(mutex_);  // from heartbeats answered locally
  TimePoint renewals_since_ SLIME_GUARDED_BY(mutex_);
  TimePoint appended_at_ SLIME_GUARDED_BY(mutex_);
  bool tick_asked_ SLIME_GUARDED_BY(mutex_) = false;  // by ready()
  TimePoint tick_asked_at_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t tick_jitter_ = 0;  // percent, so that mostly one engine ticks and the others see
                                   // its tick

  CondVar settled_;                       // failure_ is the result of the last attempt
  Worker reader_, writer_, snapshotter_;  // last: their threads use all of the above
};

}  // namespace slime::ctrl
