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

// A backup in pages of about limits::kPageBytes, all of one moment. A registry too large for one
// page is copied; the copy is kept until limits::kBackupIdle after the last request for a page. At
// most one copy exists. Thread: any.
class BackupPages {
 public:
  // Returns the first page, in JSON (store/backup.h), of the state that `take` returns, without the
  // keys of scopes. kUnavailable while another backup is being read; then `take` is not called.
  Result<std::string> first(const std::function<RegistryState()>& take, TimePoint now);
  // Returns the page that an earlier page names in `next`; may be repeated. kInvalidArgument:
  // `cursor` is not from a page. kNotFound: the copy is gone.
  Result<std::string> next(std::string_view cursor, TimePoint now);
  // Frees a copy whose reader has gone.
  void expire(TimePoint now);

 private:
  using Snapshot = std::shared_ptr<const RegistryState>;
  // Encodes the page that begins at record `index`, and moves `index` to the first record after it.
  static std::string page(const RegistryState& state, const std::string& id, std::size_t& index);
  [[nodiscard]] bool in_use(TimePoint now) const SLIME_REQUIRES(mutex_);

  Mutex mutex_;
  Snapshot snapshot_ SLIME_GUARDED_BY(mutex_);  // null: no copy
  std::string id_ SLIME_GUARDED_BY(mutex_);
  TimePoint used_at_ SLIME_GUARDED_BY(mutex_);
  bool ended_ SLIME_GUARDED_BY(mutex_) = false;  // the last page was requested
  Mutex taking_;                                 // held while a copy is made; locked before mutex_
};

}  // namespace slime::ctrl
