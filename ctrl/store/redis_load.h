#pragma once

#include <string>

#include "base/result.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/redis_log.h"
#include "ctrl/store/replay.h"

// Loading a registry from the log in Redis.
namespace slime::ctrl {

struct LoadedLog {
  SnapshotHead head;  // the snapshot that it started from
  Registry registry;
  Replay replay;
};

// The state of an engine that loads the log again.
struct EarlierLog {
  std::string lineage;  // empty: no earlier state
  const Registry& registry;
  Replay replay;
  bool replaced = false;  // the last applied entry is no longer in the log, or differs
};

// Returns the registry as of the log's last entry. If there is no log, begins one with an empty
// registry under `name`. If the log lost entries that `earlier` has, logs this, and first makes
// numbers continue from those of `earlier`. kInvalidArgument when the log's rules differ from
// `options`; kUnimplemented and kCorrupt for unreadable entries or records.
Result<LoadedLog> load_log(RedisLog& log, const std::string& name, const RegistryOptions& options,
                           const EarlierLog& earlier);

// Begins a log at "redis://..." with this registry. kAlreadyExists when there is a log.
Status begin_log(const std::string& url, const Registry& registry);

// Returns the error for an unreadable entry.
Status bad_entry(EntryId id, const Status& status);

}  // namespace slime::ctrl
