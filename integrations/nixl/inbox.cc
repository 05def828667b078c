#include "integrations/nixl/inbox.h"

#include <iterator>

#include "integrations/nixl/plugin_data.h"

namespace slime::nixl {

Status Inbox::put(Bytes body) {
  auto notification = decode_notification(body);
  if (!notification) return std::move(notification).error();
  std::pair item(std::move(notification->sender), std::string(notification->message));
  const MutexLock lock(mutex_);
  list_.push_back(std::move(item));
  return {};
}

void Inbox::take(List& out) {
  List taken;
  {
    const MutexLock lock(mutex_);
    if (list_.empty()) return;
    taken.swap(list_);
  }
  if (out.empty())
    out = std::move(taken);
  else
    out.insert(out.end(), std::make_move_iterator(taken.begin()), std::make_move_iterator(taken.end()));
}

}  // namespace slime::nixl
