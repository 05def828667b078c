#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "ctrl/registry/registry.h"

namespace slime::ctrl {

// The keys of records that have changed since they were last written, ordered by their first
// change. Changes are numbered: a waiter can wait until a change and all before it are written.
// Each batch contains all changed counters, so that no stored peer has a larger number than the
// stored counters. Thread: one.
class DirtyRecords {
 public:
  struct Entry {
    RecordKey key;
    // number of the record's first change that is not written; 0: a counter
    std::uint64_t change = 0;
  };

  // Returns the number of this change.
  std::uint64_t add(const std::vector<RecordKey>& keys);
  // Removes and returns the next batch: all changed counters, scopes and keys, and at most `limit`
  // other records, oldest first.
  std::vector<Entry> take(std::size_t limit);
  // Puts back the entries of a batch that could not be written, before all other entries.
  void give_back(const std::vector<Entry>& entries);
  // Returns the number up to which all changes were taken: they are written, or in the last batch.
  [[nodiscard]] std::uint64_t taken() const;
  [[nodiscard]] std::uint64_t last_change() const { return last_change_; }
  [[nodiscard]] bool empty() const { return order_.empty() && counters_.empty(); }
  [[nodiscard]] std::size_t size() const { return order_.size() + counters_.size(); }

 private:
  std::uint64_t last_change_ = 0;
  std::deque<Entry> order_;
  std::set<RecordKey> members_;   // of order_
  std::set<RecordKey> counters_;  // keys that each batch contains
};

}  // namespace slime::ctrl
