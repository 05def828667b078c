#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/log_format.h"
#include "ctrl/store/redis.h"

// A log of commands in Redis, with the snapshot that it goes on from:
//
//   {PREFIX}:log        a stream; an entry has the fields "head" and "body" (log_format.h)
//   {PREFIX}:snapshot   a hash: "lineage" names this log among all that ever had its place; "rules"; "id" and
//                       "entries", the last entry that the snapshot has and how many that makes since the log
//                       began; "chunks" and "0", "1", ..., the records; "trimmed" and "removed", up to where
//                       entries may be gone from the stream and how many are
//
// What needs both at once is a script, so it sees and does all of it at one moment.
namespace slime::ctrl {

struct LogKeys {
  explicit LogKeys(const std::string& prefix);
  std::string log, snapshot;
};

struct StoredEntry {
  EntryId id;
  EncodedEntry entry;
};

// What the snapshot's hash says without its records.
struct SnapshotHead {
  std::string lineage;  // empty: there is no log
  EntryId at;
  std::uint64_t entries = 0;
  EntryId trimmed;
};

struct Snapshot {
  SnapshotHead head;
  std::string rules;
  std::vector<std::string> chunks;
};

// The operations on it, over one connection. kCorrupt for what we would never have written; what Redis says
// has its codes of redis.h. Thread: the connection's.
class RedisLog {
 public:
  // Both outlive it.
  RedisLog(redis::Connection& connection, const LogKeys& keys) : connection_(connection), keys_(keys) {}

  struct Batch {
    std::vector<StoredEntry> entries;
    SnapshotHead head;  // as it was just after
  };
  // At most `count` entries after that one, waiting up to `wait` for the first. They are complete if
  // head.lineage is the one that was expected and head.trimmed is not after `after`.
  Result<Batch> read(EntryId after, std::size_t count, Nanos wait);
  Result<std::optional<StoredEntry>> entry(EntryId id);
  // kAborted when the log is of another lineage, or none: then nothing was appended.
  Status append(const std::string& lineage, const std::vector<EncodedEntry>& entries);

  // Nothing when there is none.
  Result<std::optional<Snapshot>> load();
  // A log that begins with this snapshot, unless somebody else was faster. `name` is the writer's own.
  Status create(const Snapshot& snapshot, const std::string& name);
  // Replaces the snapshot of `replaced` entries by this later one of the same lineage, and removes the
  // entries that it had. Nothing when another one is there by now: two in a row would remove entries that
  // others have yet to read.
  Status advance(const Snapshot& snapshot, std::uint64_t replaced, const std::string& name);

 private:
  Result<SnapshotHead> receive_head();
  Status stage(const Snapshot& snapshot, const std::string& key);

  redis::Connection& connection_;
  const LogKeys& keys_;
};

}  // namespace slime::ctrl
