#include "ctrl/api/reports.h"

#include <utility>

namespace slime::ctrl {
namespace {

constexpr std::size_t kOverheadBytes = 128;  // per entry, link and counter

std::size_t size_of(const std::string& name, const Report& report) {
  std::size_t bytes = kOverheadBytes + name.size();
  for (const LinkReport& link : report.links)
    bytes += kOverheadBytes + link.peer.size() + link.provider.size() + link.state.size();
  return bytes + kOverheadBytes * report.counters.size();
}

}  // namespace

bool Reports::put(const std::string& scope, const std::string& name, std::uint64_t incarnation,
                  Report report) {
  const std::size_t bytes = size_of(name, report);
  auto shared = std::make_shared<const Report>(std::move(report));
  const MutexLock lock(mutex_);
  erase(scope, name);
  const auto of_scope = scopes_.find(scope);
  const std::size_t has = of_scope == scopes_.end() ? 0 : of_scope->second.bytes;
  if (bytes_ + bytes > bytes_max_ || has + bytes > bytes_per_scope_max_) return false;
  bytes_ += bytes;
  Scope& into = scopes_[scope];
  into.bytes += bytes;
  into.agents.insert_or_assign(name, Entry{incarnation, std::move(shared), bytes});
  return true;
}

void Reports::forget(std::string_view scope, std::string_view name) {
  const MutexLock lock(mutex_);
  erase(scope, name);
}

void Reports::erase(std::string_view scope, std::string_view name) {
  const auto of_scope = scopes_.find(scope);
  if (of_scope == scopes_.end()) return;
  Scope& from = of_scope->second;
  const auto it = from.agents.find(name);
  if (it == from.agents.end()) return;
  bytes_ -= it->second.bytes;
  from.bytes -= it->second.bytes;
  from.agents.erase(it);
  if (from.agents.empty()) scopes_.erase(of_scope);
}

Reports::Slice Reports::slice(std::string_view scope, std::string_view after, std::size_t limit) const {
  Slice out;
  const MutexLock lock(mutex_);
  const auto of_scope = scopes_.find(scope);
  if (of_scope == scopes_.end()) return out;
  const auto& agents = of_scope->second.agents;
  auto it = agents.upper_bound(after);
  for (; it != agents.end() && out.reports.size() < limit; ++it)
    out.reports.push_back({it->first, it->second.incarnation, it->second.report});
  out.more = it != agents.end();
  return out;
}

void Reports::clear() {
  const MutexLock lock(mutex_);
  scopes_.clear();
  bytes_ = 0;
}

}  // namespace slime::ctrl
