#pragma once

#include <condition_variable>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ctrl/store/dirty.h"
#include "ctrl/store/engine.h"
#include "ctrl/store/records.h"
#include "ctrl/store/sqlite.h"

namespace slime::ctrl {

// Keeps the registry in one SQLite file, a row for each record. Commands have their effect in memory at once;
// a thread writes what they changed, all that came since the last time in one transaction, and submit() waits
// for the transaction that has its change. The file belongs to one process at a time.
//
// A write that fails (a full disk) fails the submits that wait for it, and until one has succeeded again,
// which is tried every half second, commands are refused; heartbeats and queries go on.
class SqliteEngine final : public Engine {
 public:
  // Makes the file, or goes on with what it has, as after RestartCommand. kUnavailable: another process has
  // it, or it cannot be opened; kCorrupt: it is damaged, is no registry, or a later version's.
  static Result<std::unique_ptr<Engine>> open(const std::string& path, RegistryOptions options,
                                              const Clock& clock);
  // Makes the file, or takes an empty one, and writes this registry to it. kAlreadyExists when it has one.
  static Status fill(const std::string& path, const Registry& registry);
  ~SqliteEngine() override;  // what was submitted is kept

  Outcome submit(const Command& command) override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] Status writable() const override;
  // Commits a small transaction, and checks that the file has room to grow.
  [[nodiscard]] Status ready() override;

 private:
  SqliteEngine(Registry registry, const Clock& clock, std::string path, sqlite::Connection connection);
  void expire() override;
  void note(const Outcome& out);
  Status start(std::uint64_t epoch);
  void run();
  void write_dirty(std::unique_lock<std::mutex>& lock);
  void answer_probe(std::unique_lock<std::mutex>& lock);
  Status probe();  // without the lock
  // One transaction, without the lock; one text at a time is in memory.
  Status write(const std::vector<DirtyRecords::Entry>& entries, const std::vector<RecordEncoder>& encoders);
  Status write_rows(const std::vector<DirtyRecords::Entry>& entries,
                    const std::vector<RecordEncoder>& encoders);

  const std::string path_;
  sqlite::Connection connection_;  // the thread's
  DirtyRecords dirty_;
  std::uint64_t kept_ = 0;    // changes up to here are in the file
  std::uint64_t failed_ = 0;  // and up to here they were tried
  Status failure_;            // of the last transaction
  // State of ready(): whether a probe is asked for, and since when; how many probes have ended, when the
  // last one did, and its result.
  bool probe_asked_ = false;
  TimePoint probe_asked_at_;
  std::uint64_t probes_ = 0;
  TimePoint probed_at_;
  Status probed_;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::condition_variable written_;
  std::thread writer_;  // last: it uses all of the above
};

}  // namespace slime::ctrl
