#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/registry/registry.h"

namespace slime::ctrl {

// A backup in pages of about limits::kPageBytes. All are of one moment: what is too large for one page is
// copied and kept until nobody has asked for a page for limits::kBackupIdle. One copy at most. Thread: any.
class BackupPages {
 public:
  // The first page in JSON (store/backup.h) of what `take` returns, without the keys of scopes. kUnavailable
  // while somebody else reads the pages of an earlier one; then `take` is not called.
  Result<std::string> first(const std::function<RegistryState()>& take, TimePoint now);
  // The page that an earlier one names as its next; the same again when it is asked for again.
  // kInvalidArgument: nothing that a page names. kNotFound: the copy is gone.
  Result<std::string> next(std::string_view cursor, TimePoint now);
  // Forgets a copy that nobody reads any more.
  void expire(TimePoint now);

 private:
  using Snapshot = std::shared_ptr<const RegistryState>;
  // Encodes the page that begins at record `index`, and moves `index` to the first record after it.
  static std::string page(const RegistryState& state, const std::string& id, std::size_t& index);
  [[nodiscard]] bool in_use(TimePoint now) const;

  std::mutex mutex_;
  Snapshot snapshot_;  // null: there is none
  std::string id_;
  TimePoint used_at_;
  bool ended_ = false;  // its last page was asked for
  std::mutex taking_;   // by who makes one; taken first
};

}  // namespace slime::ctrl
