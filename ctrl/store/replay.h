#pragma once

#include <cstdint>

#include "ctrl/registry/registry.h"
#include "ctrl/store/log_format.h"

namespace slime::ctrl {

// While a registry has peers, an entry is appended to the log at least this often, by whoever can.
Nanos tick_interval(Nanos ttl);
// Two entries that are further apart: nobody could append.
Nanos idle_limit(Nanos ttl);

// Where a registry stands in a log of commands, and how it goes on. Time is that of the entries alone, so
// whoever applies the same ones has the same registry. Time in which nobody could append does not count,
// since agents could not renew their leases then: before the entry that ends it every lease begins anew.
class Replay {
 public:
  Replay() = default;
  Replay(EntryId at, std::uint64_t entries) : at_(at), entries_(entries) {}

  // `id` is larger than at().
  Outcome apply(Registry& registry, EntryId id, const Command& command);
  [[nodiscard]] EntryId at() const { return at_; }                  // of the last entry that was applied
  [[nodiscard]] std::uint64_t entries() const { return entries_; }  // how many were, since the log began

 private:
  EntryId at_;
  std::uint64_t entries_ = 0;
};

// The largest number that the registry ever told.
std::uint64_t largest_number(const RegistryState& state);
// Whether all numbers that it will give out are larger than `known`.
bool goes_on_from(const RegistryState& state, std::uint64_t known);
// Whether a registry of these numbers may have told what one of `earlier` does not know.
bool went_back(const RegistryState& earlier, const RegistryState& state);

}  // namespace slime::ctrl
