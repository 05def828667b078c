#pragma once

#include <cstdint>

#include "ctrl/registry/registry.h"
#include "ctrl/store/log_format.h"

namespace slime::ctrl {

// While a registry has peers, some engine appends an entry to the log at least this often.
Nanos tick_interval(Nanos ttl);
// Two entries further apart than this mean that no engine could append between them.
Nanos idle_limit(Nanos ttl);

// The position of a registry in a log of commands. Time is taken from the entries alone, so that
// all engines that apply the same entries have the same registry. Periods in which no engine could
// append do not count, since agents could not renew their leases: every lease begins anew before
// the entry that ends the period.
class Replay {
 public:
  Replay() = default;
  Replay(EntryId at, std::uint64_t entries) : at_(at), entries_(entries) {}

  // `id` is larger than at().
  Outcome apply(Registry& registry, EntryId id, const Command& command);
  [[nodiscard]] EntryId at() const { return at_; }                  // the last applied entry
  [[nodiscard]] std::uint64_t entries() const { return entries_; }  // applied since the log began

 private:
  EntryId at_;
  std::uint64_t entries_ = 0;
};

// Returns the largest epoch, incarnation or revision that the registry ever gave out.
std::uint64_t largest_number(const RegistryState& state);
// Returns whether all numbers that it will give out are larger than `known`.
bool goes_on_from(const RegistryState& state, std::uint64_t known);
// Returns whether a registry in the state `earlier` gave out numbers that `state` does not know.
bool went_back(const RegistryState& earlier, const RegistryState& state);

}  // namespace slime::ctrl
