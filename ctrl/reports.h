#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ctrl/types.h"

namespace slime::ctrl {

// The last report of each agent that tells one. In memory only, and of those only whose heartbeats come to
// this nanoctrl. Thread: any.
class Reports {
 public:
  explicit Reports(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // False: there is no room, and what there was of this agent is gone.
  bool put(const std::string& scope, const std::string& name, std::uint64_t incarnation, Report report);
  void forget(std::string_view scope, std::string_view name);
  void clear();
  // Those of a scope after that name, in the order of names, until the visitor returns false.
  using Visitor =
      std::function<bool(const std::string& name, std::uint64_t incarnation, const Report& report)>;
  void visit(std::string_view scope, std::string_view after, const Visitor& visitor) const;

 private:
  struct Entry {
    std::uint64_t incarnation = 0;
    Report report;
    std::size_t bytes = 0;
  };
  using Scope = std::map<std::string, Entry, std::less<>>;
  void erase(std::string_view scope, std::string_view name);

  const std::size_t bytes_max_;
  mutable std::mutex mutex_;
  std::map<std::string, Scope, std::less<>> scopes_;
  std::size_t bytes_ = 0;
};

}  // namespace slime::ctrl
