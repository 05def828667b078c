#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/log_format.h"
#include "ctrl/store/redis.h"

// A log of commands in Redis, with the snapshot that it continues from:
//
//   {PREFIX}:log        a stream; an entry has the fields "head" and "body" (log_format.h)
//   {PREFIX}:snapshot   a hash:
//     "lineage"         identifies this log among all logs that were ever at this key
//     "rules"           describe_rules()
//     "id"              the last entry in the snapshot
//     "entries"         how many entries up to "id" the log has had since it began
//     "chunks"          the number of chunks
//     "0", "1", ...     the chunks, which contain the records
//     "trimmed"         the last entry that may be gone from the stream
//     "removed"         how many entries are gone from the stream
//
// Operations that need both keys are scripts, so that they are atomic.
namespace slime::ctrl {

struct LogKeys {
  explicit LogKeys(const std::string& prefix);
  std::string log, snapshot;
};

struct StoredEntry {
  EntryId id;
  EncodedEntry entry;
};

// The fields of the snapshot's hash, except its records.
struct SnapshotHead {
  std::string lineage;  // empty: no log
  EntryId at;
  std::uint64_t entries = 0;
  EntryId trimmed;
};

struct Snapshot {
  SnapshotHead head;
  std::string rules;
  std::vector<std::string> chunks;
};

// Operations on the log, over one connection. kCorrupt for data that nanoctrl never writes; Redis'
// errors have the codes of redis.h. Thread: the connection's.
class RedisLog {
 public:
  // `connection` and `keys` outlive this.
  RedisLog(redis::Connection& connection, const LogKeys& keys) : connection_(connection), keys_(keys) {}

  struct Batch {
    std::vector<StoredEntry> entries;
    SnapshotHead head;  // read atomically just after the entries
  };
  // Reads at most `count` entries after `after`, waiting up to `wait` for the first. No entry is
  // missing if head.lineage is the expected lineage and head.trimmed is not after `after`.
  Result<Batch> read(EntryId after, std::size_t count, Nanos wait);
  Result<std::optional<StoredEntry>> entry(EntryId id);
  // kAborted when the log is missing or of another lineage: then nothing was appended.
  Status append(const std::string& lineage, const std::vector<EncodedEntry>& entries);

  // Returns the snapshot; empty when there is no log.
  Result<std::optional<Snapshot>> load();
  // Begins a log with this snapshot, unless another engine has begun one. `name` is the writer's.
  Status create(const Snapshot& snapshot, const std::string& name);
  // Replaces the snapshot of `replaced` entries by this later one of the same lineage, and removes
  // the entries of the old snapshot. Does nothing when another engine replaced it first: two
  // replacements in a row would remove entries that other engines have not read yet.
  Status advance(const Snapshot& snapshot, std::uint64_t replaced, const std::string& name);

 private:
  Result<SnapshotHead> receive_head();
  Status stage(const Snapshot& snapshot, const std::string& key);

  redis::Connection& connection_;
  const LogKeys& keys_;
};

}  // namespace slime::ctrl
