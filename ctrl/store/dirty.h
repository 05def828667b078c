#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "ctrl/registry/registry.h"

namespace slime::ctrl {

// The keys of records that have changed since they were last written, in the order of their first change
// since then. Each change has a number; who waits for one wants to know when it and all before are written.
// Counters are taken with every batch, so that no written peer is ever later than they are. Thread: one.
class DirtyRecords {
 public:
  struct Entry {
    RecordKey key;
    std::uint64_t change = 0;  // the first one of it that is not written
  };

  // The number of this change.
  std::uint64_t add(const std::vector<RecordKey>& keys);
  // All counters and scopes, and the oldest peers up to `limit`.
  std::vector<Entry> take(std::size_t limit);
  // They could not be written: they are the oldest again.
  void give_back(const std::vector<Entry>& entries);
  // All changes up to this one are in what was taken, or in nothing.
  [[nodiscard]] std::uint64_t taken() const;
  [[nodiscard]] std::uint64_t last_change() const { return last_change_; }
  [[nodiscard]] bool empty() const { return order_.empty() && counters_.empty(); }
  [[nodiscard]] std::size_t size() const { return order_.size() + counters_.size(); }

 private:
  std::uint64_t last_change_ = 0;
  std::deque<Entry> order_;
  std::set<RecordKey> members_;   // of order_
  std::set<RecordKey> counters_;  // of other tables
};

}  // namespace slime::ctrl
