#pragma once

#include <cstdint>

#include "ctrl/registry/registry.h"
#include "ctrl/store/log_format.h"

namespace slime::ctrl {

// Returns how long after the last entry an engine appends a tick, if the registry has peers. Each
// engine waits a random part longer, so that usually one engine ticks for all.
Nanos tick_interval(Nanos ttl);
// Returns the time between two entries beyond which all engines assume that no engine could append
// in between. Every lease then begins anew.
Nanos idle_limit(Nanos ttl);

// The position of a registry in a log of commands. Uses only the times of the entries, so that all
// engines with the same entries have the same registry. A period in which no engine could append
// does not count, because agents could not renew their leases: the entry after the period first
// gives every lease a full TTL.
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

// Returns the largest number that the registry has given out as epoch, incarnation or revision.
std::uint64_t largest_number(const RegistryState& state);
// Returns whether all numbers that a registry in this state will give out are larger than `known`.
bool goes_on_from(const RegistryState& state, std::uint64_t known);
// Returns whether `state` is behind `earlier`: a registry in the state `earlier` has given out
// numbers that a registry in `state` would give out again.
bool went_back(const RegistryState& earlier, const RegistryState& state);

}  // namespace slime::ctrl
