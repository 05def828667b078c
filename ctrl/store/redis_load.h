#pragma once

#include <string>

#include "base/result.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/redis_log.h"
#include "ctrl/store/replay.h"

// Loads a registry from its log in Redis.
namespace slime::ctrl {

struct LoadedLog {
  SnapshotHead head;  // the snapshot that it started from
  Registry registry;
  Replay replay;
};

// The state that an engine had before it loads the log again.
struct EarlierLog {
  std::string lineage;  // empty: no earlier state
  const Registry& registry;
  Replay replay;
  // true: the entry at `replay` is no longer in the log, or has another text
  bool replaced = false;
};

// Returns the registry after the last entry of the log. If there is no log, begins a log with an
// empty registry; `name` is the engine's name. If the log has lost entries that `earlier` had
// applied, logs an error and continues the numbers of `earlier`. kInvalidArgument when the log's
// rules differ from `options`; kUnimplemented and kCorrupt for entries or records that cannot be
// read.
Result<LoadedLog> load_log(RedisLog& log, const std::string& name, const RegistryOptions& options,
                           const EarlierLog& earlier);

// Begins a log at `url` ("redis://...") with `registry` as its first snapshot. kAlreadyExists when
// there is a log.
Status begin_log(const std::string& url, const Registry& registry);

// Returns the error for an unreadable entry.
Status bad_entry(EntryId id, const Status& status);

}  // namespace slime::ctrl
