#pragma once

#include <string>

#include "base/result.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/redis_log.h"
#include "ctrl/store/replay.h"

// A registry from the log that is in Redis.
namespace slime::ctrl {

struct LoadedLog {
  SnapshotHead head;  // that it started from
  Registry registry;
  Replay replay;
};

// What somebody had who loads again.
struct EarlierLog {
  std::string lineage;  // empty: nothing
  const Registry& registry;
  Replay replay;
  bool replaced = false;  // the entry that it applied last is not in the log any more, or is another one
};

// The registry as of the log's last entry. Where there is no log, one with an empty registry is begun, under
// `name`. Where the log has lost what `earlier` had, that is logged, and before anything else numbers are
// made to go on from those that `earlier` told. kInvalidArgument when its rules are not those of `options`;
// kUnimplemented and kCorrupt for entries or records that cannot be read.
Result<LoadedLog> load_log(RedisLog& log, const std::string& name, const RegistryOptions& options,
                           const EarlierLog& earlier);

// Begins a log with this registry, at "redis://...". kAlreadyExists when there is one.
Status begin_log(const std::string& url, const Registry& registry);

// What is said of an entry that cannot be read.
Status bad_entry(EntryId id, const Status& status);

}  // namespace slime::ctrl
