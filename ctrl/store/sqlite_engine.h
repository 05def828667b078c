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

// Stores the registry in one SQLite file, a row per record. A command takes effect in memory at
// once; submit() then waits until its change is in the file. A writer thread writes the changed
// records in batches, one transaction each. Only one process can open the file.
//
// After a failed write, such as on a full disk, waiting submit() calls fail. Commands are refused
// until a retry, every half second, has succeeded; heartbeats and queries continue.
class SqliteEngine final : public Engine {
 public:
  // Opens the file and continues with its registry as after a RestartCommand; creates the file if
  // it is missing. kUnavailable: the file cannot be opened, or another process has it open.
  // kCorrupt: the file is damaged, is not a registry, or was written by a later version.
  static Result<std::unique_ptr<Engine>> open(const std::string& path, RegistryOptions options,
                                              const Clock& clock);
  // Writes the registry to a new file, or to a file without a registry. kAlreadyExists when the
  // file has a registry.
  static Status fill(const std::string& path, const Registry& registry);
  ~SqliteEngine() override;  // writes all submitted changes first

  Outcome submit(const Command& command) override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] Status writable() const override;
  // Lets the writer thread commit a small transaction and check that the disk has room. Returns the
  // result.
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
  // Writes one batch in a transaction. Encodes one record at a time. Called without the lock.
  Status write(const std::vector<DirtyRecords::Entry>& entries, const std::vector<RecordEncoder>& encoders);
  Status write_rows(const std::vector<DirtyRecords::Entry>& entries,
                    const std::vector<RecordEncoder>& encoders);

  const std::string path_;
  sqlite::Connection connection_;  // used by the writer thread
  DirtyRecords dirty_ SLIME_GUARDED_BY(mutex_);
  // number of the last change that is in the file, with all changes before it
  std::uint64_t kept_ SLIME_GUARDED_BY(mutex_) = 0;
  // number of the last change in the last transaction that failed
  std::uint64_t failed_ SLIME_GUARDED_BY(mutex_) = 0;
  Status failure_ SLIME_GUARDED_BY(mutex_);  // result of the last transaction
  // State of ready(): whether a probe is requested (and since when), the number of completed
  // probes, when the last probe completed, and its result.
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
