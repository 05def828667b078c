#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "ctrl/types.h"

namespace slime::agent {

// Where the registry says that a name is.
struct DirectoryEntry {
  std::string address;
  InstanceId instance;
  std::uint64_t incarnation = 0;
};

// The part of the registry that this agent has asked for, kept up by the changes that heartbeats bring. Old
// by up to a heartbeat: who fails to connect to an entry asks the registry itself. Thread: any.
class Directory {
 public:
  [[nodiscard]] std::optional<DirectoryEntry> find(std::string_view name) const;
  void remember(const std::string& name, DirectoryEntry entry);
  // If it is this owner of the name, or 0 for any.
  void forget(std::string_view name, std::uint64_t incarnation);
  // A change; of names that nobody asked for only the latest owner would be news, so they are not kept.
  void apply(const ctrl::Event& event);
  void clear();
  [[nodiscard]] std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, DirectoryEntry, std::less<>> entries_;
};

}  // namespace slime::agent
