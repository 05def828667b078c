#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "ctrl/registry/registry.h"

namespace slime::ctrl {

// The keys of records that changed since they were last written, in the order of their first change
// since then. Changes are numbered; a waiter waits until its change and all before it are written.
// Each batch contains all counters, so that stored counters are never behind a stored peer. Thread:
// one.
class DirtyRecords {
 public:
  struct Entry {
    RecordKey key;
    std::uint64_t change = 0;  // the first change of this record that is not written
  };

  // Returns the number of this change.
  std::uint64_t add(const std::vector<RecordKey>& keys);
  // Returns all counters and scopes, and the oldest peers up to `limit`.
  std::vector<Entry> take(std::size_t limit);
  // Returns entries that could not be written; they are the oldest again.
  void give_back(const std::vector<Entry>& entries);
  // All changes up to this number are either in the entries taken or written.
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
