#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "ctrl/store/engine.h"
#include "ctrl/store/redis_log.h"
#include "ctrl/store/replay.h"

namespace slime::ctrl {

// When a snapshot is due: after so many entries, or bytes of them, or so long after the last one if something
// has changed. Each engine waits up to half as long again, by chance, so that mostly one of them writes it.
struct SnapshotPolicy {
  std::uint64_t entries = 20'000;
  std::uint64_t bytes = std::uint64_t{32} << 20;
  Nanos interval = std::chrono::seconds(60);
};

// Shares one registry with all engines on the same log in Redis (redis_log.h). A command is appended to the
// log; each engine applies all entries in order to a registry of its own (replay.h), and submit() waits until
// its own has come back. Queries are answered from here, and so are heartbeats that are in order: their
// leases are renewed by an entry for many, several times a second. What ends, ends by an entry.
//
// When Redis is away, or its answers are not what they should be, commands are refused until it is back.
// Heartbeats go on for a third of a TTL: when only this engine is cut off, agents need the time to find
// another one, and when all are, no lease ends meanwhile anyway.
class RedisEngine final : public Engine {
 public:
  // kUnavailable, kUnauthenticated, kPermissionDenied; kInvalidArgument when the log follows other rules,
  // such as another TTL, which is rounded to milliseconds; kUnimplemented or kCorrupt for a log that cannot
  // be read.
  static Result<std::unique_ptr<Engine>> open(const std::string& url, RegistryOptions options,
                                              const Clock& clock, SnapshotPolicy policy = {});
  ~RedisEngine() override;  // within seconds, also when Redis does not answer

  Outcome submit(const Command& command) override;
  Nanos tick() override { return Nanos::max(); }  // its threads do that
  [[nodiscard]] std::string describe() const override { return redis::to_string(address_); }
  [[nodiscard]] Status writable() const override;
  // Appends a tick, unless something was appended within kReadyFor.
  [[nodiscard]] Status ready() override;

  // Where it is in the log.
  [[nodiscard]] std::pair<EntryId, std::uint64_t> position() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  // A submit() that waits.
  struct Waiter {
    std::condition_variable done;
    std::optional<Outcome> outcome;
  };
  struct Queued {
    std::uint64_t number = 0;
    EncodedEntry entry;
  };
  using Leases = std::map<std::pair<std::string, std::string>, std::uint64_t>;

  RedisEngine(redis::Address address, RegistryOptions options, const Clock& clock, SnapshotPolicy policy);
  void expire() override {}
  void start();

  // submit()
  std::optional<Outcome> answer_heartbeat(const HeartbeatCommand& command);
  Outcome wait_for(Lock& lock, std::uint64_t number, Waiter& waiter);
  [[nodiscard]] Status refusal() const;
  EncodedEntry encode(std::uint64_t number, Command command) const;

  // The reader: the only one that changes the registry.
  void run_reader();
  Status follow();
  Status resume(RedisLog& log);
  Status load(RedisLog& log, bool replaced = false);  // EarlierLog::replaced
  Status apply_batch(const RedisLog::Batch& batch);
  Status check(const RedisLog::Batch& batch) const;
  void note_snapshot(const SnapshotHead& head);

  // The writer: appends what is queued, renewals and ticks.
  void run_writer();
  void wait_for_work(Lock& lock);
  [[nodiscard]] TimePoint work_due() const;
  std::vector<EncodedEntry> take_work();
  Result<redis::Connection> connect_again(redis::Interrupt& interrupt) const;
  Status append(std::optional<redis::Connection>& connection, const std::string& lineage,
                const std::vector<EncodedEntry>& entries);

  void run_snapshots();
  Status write_snapshot(Snapshot snapshot, std::uint64_t replaced, const RegistryState& state);

  // Both threads begin anew: the reader looks where the log is, then the writer appends something.
  void disconnect(const Status& status);
  void fail_waiters(const Status& status);
  void finish(std::uint64_t number, Outcome outcome);

  const redis::Address address_;
  const LogKeys keys_;
  const std::string name_;  // of this engine in the log
  const SnapshotPolicy policy_;
  Rng rng_;

  Status failure_;              // OK: everything works
  TimePoint failed_at_;         // the first of these
  std::uint64_t session_ = 0;   // of the reader that follows the log now; 0: none does
  std::uint64_t sessions_ = 0;  // the last one
  Nanos backoff_{};
  bool stopping_ = false;

  std::string lineage_;
  Replay replay_;
  std::string last_head_;      // of the entry at replay_.at(); empty: unknown
  TimePoint applied_at_;       // when that was, by our clock
  std::uint64_t changed_ = 0;  // replay_.entries() when something changed last
  SnapshotHead snapshot_;      // in Redis, as far as known
  std::uint64_t bytes_ = 0;    // of the entries that came since it did
  bool snapshot_due_ = false;
  std::uint64_t snapshot_jitter_ = 0;  // percent of the policy

  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, Waiter*> waiters_;
  std::deque<Queued> queue_;
  std::size_t queue_bytes_ = 0;
  Leases renewals_;  // of heartbeats that were answered
  TimePoint renewals_since_;
  TimePoint appended_at_;
  bool tick_asked_ = false;  // by ready()
  TimePoint tick_asked_at_;
  std::uint64_t tick_jitter_ = 0;  // percent; so that mostly one engine ticks, and the others see it

  std::condition_variable reader_wakes_;
  std::condition_variable writer_wakes_;
  std::condition_variable snapshots_wake_;
  std::condition_variable settled_;  // failure_ is what came of the last attempt
  redis::Interrupt reading_, writing_, snapshotting_;
  std::thread reader_, writer_, snapshotter_;  // last: they use all of the above
};

}  // namespace slime::ctrl
