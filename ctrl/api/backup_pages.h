#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "ctrl/registry/registry.h"

namespace slime::ctrl {

// Serves a backup in pages of about limits::kPageBytes that all show the registry at one moment.
// Keeps a copy of a registry that needs several pages, until limits::kBackupIdle after the last
// request. Keeps at most one copy. Thread: any.
class BackupPages {
 public:
  // Begins a backup of the state that `take` returns, without the keys of scopes. Returns the first
  // page, in JSON (store/backup.h). kUnavailable while another backup is being read.
  Result<std::string> first(const std::function<RegistryState()>& take, TimePoint now);
  // Returns the page that begins at `cursor`, the `next` of the page before; may be called again
  // for the same page. kInvalidArgument: `cursor` is malformed. kNotFound: the copy no longer
  // exists.
  Result<std::string> next(std::string_view cursor, TimePoint now);
  // Frees a copy whose reader has gone.
  void expire(TimePoint now);

 private:
  using Snapshot = std::shared_ptr<const RegistryState>;
  // Encodes the page that begins at record `index`, and advances `index` to the first record of the
  // next page.
  static std::string page(const RegistryState& state, const std::string& id, std::size_t& index);
  [[nodiscard]] bool in_use(TimePoint now) const SLIME_REQUIRES(mutex_);

  Mutex mutex_;
  Snapshot snapshot_ SLIME_GUARDED_BY(mutex_);  // null: no copy
  std::string id_ SLIME_GUARDED_BY(mutex_);
  TimePoint used_at_ SLIME_GUARDED_BY(mutex_);
  bool ended_ SLIME_GUARDED_BY(mutex_) = false;  // the last page was requested
  // held while first() makes the copy; locked before mutex_
  Mutex taking_;
};

}  // namespace slime::ctrl
