#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"

namespace slime::nixl {

// Received notifications that the user has not taken. Thread: any.
class Inbox {
 public:
  using List = std::vector<std::pair<std::string, std::string>>;  // sender, message

  // Returns kCorrupt if `body` is not a notification.
  Status put(Bytes body);
  // Moves all notifications to the end of `out`, in the order of arrival.
  void take(List& out);

 private:
  Mutex mutex_;
  List list_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::nixl
