#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "ctrl/types.h"

namespace slime::ctrl {

// The last report of each agent. Kept in memory only: has the reports of agents that send their
// heartbeats to this nanoctrl. A quota per scope keeps one scope from using all of the memory.
// Thread: any.
class Reports {
 public:
  Reports(std::size_t bytes_max, std::size_t bytes_per_scope_max)
      : bytes_max_(bytes_max), bytes_per_scope_max_(bytes_per_scope_max) {}

  // Replaces the agent's report. Returns false if the new report exceeds the memory limit, in total
  // or of the scope; the agent's old report is removed in either case.
  bool put(const std::string& scope, const std::string& name, std::uint64_t incarnation, Report report);
  void forget(std::string_view scope, std::string_view name);
  void clear();
  struct View {
    std::string name;
    std::uint64_t incarnation = 0;
    std::shared_ptr<const Report> report;
  };
  struct Slice {
    std::vector<View> reports;
    bool more = false;
  };
  // Returns the first `limit` reports of a scope after the name `after`, in the order of names.
  [[nodiscard]] Slice slice(std::string_view scope, std::string_view after, std::size_t limit) const;

 private:
  struct Entry {
    std::uint64_t incarnation = 0;
    std::shared_ptr<const Report> report;
    std::size_t bytes = 0;
  };
  struct Scope {
    std::map<std::string, Entry, std::less<>> agents;
    std::size_t bytes = 0;
  };
  void erase(std::string_view scope, std::string_view name) SLIME_REQUIRES(mutex_);

  const std::size_t bytes_max_;
  const std::size_t bytes_per_scope_max_;
  mutable Mutex mutex_;
  std::map<std::string, Scope, std::less<>> scopes_ SLIME_GUARDED_BY(mutex_);
  std::size_t bytes_ SLIME_GUARDED_BY(mutex_) = 0;
};

}  // namespace slime::ctrl
