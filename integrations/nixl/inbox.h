#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace slime::nixl {

// Notifications that came and that the user has not taken. Thread: any.
class Inbox {
 public:
  using List = std::vector<std::pair<std::string, std::string>>;  // sender, message

  // kCorrupt for what is no notification.
  Status put(Bytes body);
  // Appends to `out`, in the order in which they came.
  void take(List& out);

 private:
  std::mutex mutex_;
  List list_;
};

}  // namespace slime::nixl
