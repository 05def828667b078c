#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/log_format.h"
#include "ctrl/store/redis.h"

// A log of commands in Redis, and the snapshot from which its first entry continues:
//
//   {PREFIX}:log        a stream; an entry has the fields "head" and "body" (log_format.h)
//   {PREFIX}:snapshot   a hash with these fields:
//     "lineage"         random name of this log, different for each log that was ever at this key
//     "rules"           describe_rules()
//     "id"              id of the last entry that the snapshot includes
//     "entries"         number of entries from the beginning of the log to "id"
//     "chunks"          number of chunks
//     "0", "1", ...     the chunks, which contain the records
//     "trimmed"         id of the last entry that may be gone from the stream
//     "removed"         number of entries that are gone from the stream
//
// Operations on both keys are scripts, and so atomic.
namespace slime::ctrl {

struct LogKeys {
  explicit LogKeys(const std::string& prefix);
  std::string log, snapshot;
};

struct StoredEntry {
  EntryId id;
  EncodedEntry entry;
};

// The fields of the snapshot's hash that describe its position in the log.
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

// The log and its snapshot, accessed over one connection. kCorrupt for data that nanoctrl never
// writes; errors of Redis as in redis.h. Thread: the thread of the connection.
class RedisLog {
 public:
  // `connection` and `keys` outlive this.
  RedisLog(redis::Connection& connection, const LogKeys& keys) : connection_(connection), keys_(keys) {}

  struct Batch {
    std::vector<StoredEntry> entries;
    SnapshotHead head;  // read atomically just after the entries
  };
  // Reads at most `count` entries after the entry `after`. Waits up to `wait` if there is none. The
  // caller must check that head.lineage is the expected lineage and head.trimmed is not beyond
  // `after`; else entries may be missing.
  Result<Batch> read(EntryId after, std::size_t count, Nanos wait);
  Result<std::optional<StoredEntry>> entry(EntryId id);
  // Appends all entries, or none. kAborted when there is no log, or the log has another lineage;
  // then nothing was appended.
  Status append(const std::string& lineage, const std::vector<EncodedEntry>& entries);

  // Returns the snapshot; nullopt when there is no log.
  Result<std::optional<Snapshot>> load();
  // Begins a log with this snapshot. Does nothing if there is a log already. `name` is the engine's
  // name.
  Status create(const Snapshot& snapshot, const std::string& name);
  // Replaces the log's snapshot, which includes `replaced` entries, with a later one of the same
  // lineage. Then removes the entries that the old snapshot includes. Does nothing if another
  // engine has replaced the snapshot already: a second replacement would remove entries that other
  // engines may not have read yet.
  Status advance(const Snapshot& snapshot, std::uint64_t replaced, const std::string& name);

 private:
  Result<SnapshotHead> receive_head();
  Status stage(const Snapshot& snapshot, const std::string& key);

  redis::Connection& connection_;
  const LogKeys& keys_;
};

}  // namespace slime::ctrl
