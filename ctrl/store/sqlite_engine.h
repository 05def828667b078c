#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "ctrl/store/dirty.h"
#include "ctrl/store/engine.h"
#include "ctrl/store/records.h"
#include "ctrl/store/sqlite.h"

namespace slime::ctrl {

// Keeps the registry in one SQLite file, a row per record. Commands take effect in memory at once;
// a thread writes all changes since the last transaction in one transaction, and submit() waits for
// the transaction with its change. Only one process can open the file.
//
// After a failed write (a full disk), waiting submit() calls fail and commands are refused until a
// write has succeeded, which is tried every half second; heartbeats and queries go on.
class SqliteEngine final : public Engine {
 public:
  // Creates the file, or continues with its contents as after RestartCommand. kUnavailable: another
  // process has the file open, or it cannot be opened; kCorrupt: it is damaged, not a registry, or
  // a later version's.
  static Result<std::unique_ptr<Engine>> open(const std::string& path, RegistryOptions options,
                                              const Clock& clock);
  // Creates the file, or uses an empty one, and writes this registry. kAlreadyExists when it has a
  // registry.
  static Status fill(const std::string& path, const Registry& registry);
  ~SqliteEngine() override;  // writes all submitted changes first

  Outcome submit(const Command& command) override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] Status writable() const override;
  // Commits a small transaction, and checks that the file has room to grow.
  [[nodiscard]] Status ready() override;

 private:
  SqliteEngine(Registry registry, const Clock& clock, std::string path, sqlite::Connection connection);
  void expire() override SLIME_REQUIRES(mutex_);
  void note(const Outcome& out) SLIME_REQUIRES(mutex_);
  Status start(std::uint64_t epoch);
  void run();
  void write_dirty() SLIME_REQUIRES(mutex_);   // unlocks it meanwhile
  void answer_probe() SLIME_REQUIRES(mutex_);  // unlocks it meanwhile
  Status probe();                              // without the lock
  // Runs one transaction, without the lock; encodes one record at a time.
  Status write(const std::vector<DirtyRecords::Entry>& entries, const std::vector<RecordEncoder>& encoders);
  Status write_rows(const std::vector<DirtyRecords::Entry>& entries,
                    const std::vector<RecordEncoder>& encoders);

  const std::string path_;
  sqlite::Connection connection_;  // used by the writer thread
  DirtyRecords dirty_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t kept_ SLIME_GUARDED_BY(mutex_) = 0;  // changes up to this number are in the file
  // the last attempt to write covered changes up to this number
  std::uint64_t failed_ SLIME_GUARDED_BY(mutex_) = 0;
  Status failure_ SLIME_GUARDED_BY(mutex_);  // result of the last transaction
  // State of ready(): whether a probe was requested, and when; the number of ended probes, when the
  // last probe ended, and its result.
  bool probe_asked_ SLIME_GUARDED_BY(mutex_) = false;
  TimePoint probe_asked_at_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t probes_ SLIME_GUARDED_BY(mutex_) = 0;
  TimePoint probed_at_ SLIME_GUARDED_BY(mutex_);
  Status probed_ SLIME_GUARDED_BY(mutex_);
  bool stopping_ SLIME_GUARDED_BY(mutex_) = false;
  CondVar changed_;
  CondVar written_;
  std::thread writer_;  // last: it uses all of the above
};

}  // namespace slime::ctrl
