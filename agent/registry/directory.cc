#include "agent/registry/directory.h"

#include "agent/limits.h"

namespace slime::agent {

std::optional<DirectoryEntry> Directory::find(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return std::nullopt;
  return it->second;
}

void Directory::remember(const std::string& name, DirectoryEntry entry) {
  const MutexLock lock(mutex_);
  // Drops an entry when the cache is full: the registry is asked again for a dropped entry.
  if (entries_.size() >= limits::kRememberedPeers && !entries_.contains(name))
    entries_.erase(entries_.begin());
  entries_.insert_or_assign(name, std::move(entry));
}

void Directory::forget(std::string_view name, std::uint64_t incarnation) {
  const MutexLock lock(mutex_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return;
  if (incarnation == 0 || it->second.incarnation == incarnation) entries_.erase(it);
}

void Directory::apply(const ctrl::Event& event) {
  switch (event.kind) {
    case ctrl::EventKind::kDeregistered:
    case ctrl::EventKind::kExpired:
      forget(event.name, event.incarnation);
      return;
    case ctrl::EventKind::kLinks:
      return;
    case ctrl::EventKind::kRegistered:
    case ctrl::EventKind::kUpdated: {
      const MutexLock lock(mutex_);
      const auto it = entries_.find(event.name);
      // A look-up may have stored a newer entry before this change arrived.
      if (it == entries_.end() || it->second.incarnation > event.incarnation) return;
      it->second = {event.address, event.instance, event.incarnation};
      return;
    }
  }
}

void Directory::clear() {
  const MutexLock lock(mutex_);
  entries_.clear();
}

std::size_t Directory::size() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace slime::agent
