#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/mutex.h"
#include "ctrl/types.h"

namespace slime::agent {

// The address and owner of a name, from the registry.
struct DirectoryEntry {
  std::string address;
  InstanceId instance;
  std::uint64_t incarnation = 0;
};

// Caches the registry entries that this agent has asked for, updated by the changes that heartbeats
// bring. Entries may be old by up to a heartbeat: if connecting to an entry fails, ask the
// registry. Thread: any.
class Directory {
 public:
  [[nodiscard]] std::optional<DirectoryEntry> find(std::string_view name) const;
  void remember(const std::string& name, DirectoryEntry entry);
  // Removes the entry of `name` if its owner has this incarnation; 0: any owner.
  void forget(std::string_view name, std::uint64_t incarnation);
  // Applies a change of the registry. Changes of names that are not cached have no effect.
  void apply(const ctrl::Event& event);
  void clear();
  [[nodiscard]] std::size_t size() const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, DirectoryEntry, std::less<>> entries_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::agent
