#include "bench/ctrl_deaths.h"

#include <algorithm>

namespace slime::bench {

Deaths::Deaths(std::size_t scopes, std::size_t slots, Nanos ttl, Nanos slack)
    : ttl_(ttl), slack_(slack), scopes_(scopes) {
  for (Scope& scope : scopes_) scope.hearers.resize(slots);
}

void Deaths::joined(std::size_t scope, std::size_t slot, TimePoint answered) {
  scopes_[scope].hearers[slot] = {true, answered, answered};
}

void Deaths::died(std::size_t scope, std::size_t slot, std::uint64_t incarnation, TimePoint sent,
                  TimePoint answered) {
  Scope& its = scopes_[scope];
  its.hearers[slot].alive = false;
  for (auto& [due, death] : its.deaths) {
    if (!death.missed[slot] || death.heard[slot]) continue;
    death.missed[slot] = false;
    --figures_.never;
  }
  Death death{incarnation, sent + ttl_, answered + ttl_, sent + ttl_, {}, {}};
  death.heard.resize(its.hearers.size());
  death.missed.resize(its.hearers.size());
  const auto at = its.deaths.emplace(death.expires_last + slack_, std::move(death));
  by_incarnation_[incarnation] = &at->second;
  ++figures_.deaths;
}

void Deaths::hear(Death& death, const Hearer& hearer, std::size_t slot, TimePoint now) {
  if (death.heard[slot] || !owed(death, hearer)) return;
  death.heard[slot] = true;
  if (death.missed[slot]) --figures_.never;
  const Nanos delay = std::max(Nanos::zero(), now - death.expires_last);
  figures_.delay.add(static_cast<std::uint64_t>(delay.count()));
  figures_.delay_max = std::max(figures_.delay_max, delay);
}

bool Deaths::heard(std::size_t scope, std::size_t slot, std::uint64_t incarnation, TimePoint now) {
  const auto it = by_incarnation_.find(incarnation);
  if (it == by_incarnation_.end()) return false;
  if (now < it->second->expires_first) {
    ++figures_.early;
    it->second->known_from = it->second->expires_last - ttl_;
  }
  hear(*it->second, scopes_[scope].hearers[slot], slot, now);
  return true;
}

void Deaths::listed(std::size_t scope, std::size_t slot, std::vector<std::uint64_t> living, TimePoint now) {
  std::sort(living.begin(), living.end());
  Scope& its = scopes_[scope];
  for (auto& [due, death] : its.deaths) {
    if (!std::binary_search(living.begin(), living.end(), death.incarnation))
      hear(death, its.hearers[slot], slot, now);
  }
}

void Deaths::caught_up(std::size_t scope, std::size_t slot, TimePoint sent) {
  Scope& its = scopes_[scope];
  Hearer& hearer = its.hearers[slot];
  for (auto it = its.deaths.upper_bound(hearer.checked); it != its.deaths.end() && it->first <= sent; ++it) {
    Death& death = it->second;
    if (!owed(death, hearer)) continue;
    ++figures_.pairs;
    if (death.heard[slot]) continue;
    death.missed[slot] = true;
    ++figures_.late;
    ++figures_.never;  // counts as never heard until it is heard
  }
  hearer.checked = std::max(hearer.checked, sent);
}

bool Deaths::settled() const {
  return std::all_of(scopes_.begin(), scopes_.end(), [](const Scope& scope) {
    return scope.deaths.empty() ||
           std::all_of(scope.hearers.begin(), scope.hearers.end(), [&scope](const Hearer& hearer) {
             return !hearer.alive || hearer.checked >= scope.deaths.rbegin()->first;
           });
  });
}

Deaths::Figures Deaths::finish() {
  for (std::size_t scope = 0; scope < scopes_.size(); ++scope) {
    for (std::size_t slot = 0; slot < scopes_[scope].hearers.size(); ++slot) {
      if (scopes_[scope].hearers[slot].alive) caught_up(scope, slot, kNever);
    }
  }
  return figures_;
}

}  // namespace slime::bench
