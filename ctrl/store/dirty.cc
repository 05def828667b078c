#include "ctrl/store/dirty.h"

namespace slime::ctrl {

namespace {

// Returns whether every batch must contain the changed records of a table. True also for kKeys:
// keys cannot be restored without the record of their scope.
bool is_counter(Table table) {
  return table == Table::kRegistry || table == Table::kScope || table == Table::kKeys;
}

}  // namespace

std::uint64_t DirtyRecords::add(const std::vector<RecordKey>& keys) {
  if (keys.empty()) return last_change_;
  ++last_change_;
  for (const RecordKey& key : keys) {
    if (is_counter(key.table)) {
      counters_.insert(key);
    } else if (members_.insert(key).second) {
      order_.push_back({key, last_change_});
    }
  }
  return last_change_;
}

std::vector<DirtyRecords::Entry> DirtyRecords::take(std::size_t limit) {
  std::vector<Entry> out;
  for (const RecordKey& key : counters_) out.push_back({key, 0});
  counters_.clear();
  for (; limit > 0 && !order_.empty(); --limit) {
    members_.erase(order_.front().key);
    out.push_back(std::move(order_.front()));
    order_.pop_front();
  }
  return out;
}

void DirtyRecords::give_back(const std::vector<Entry>& entries) {
  for (auto it = entries.rbegin(); it != entries.rend(); ++it) {
    if (it->change == 0) {
      counters_.insert(it->key);
      continue;
    }
    // If the record has changed again since take(), keeps only the older entry.
    if (!members_.insert(it->key).second)
      std::erase_if(order_, [&](const Entry& entry) { return entry.key == it->key; });
    order_.push_front(*it);
  }
}

std::uint64_t DirtyRecords::taken() const {
  return order_.empty() ? last_change_ : order_.front().change - 1;
}

}  // namespace slime::ctrl
