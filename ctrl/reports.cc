#include "ctrl/reports.h"

#include <utility>

namespace slime::ctrl {
namespace {

constexpr std::size_t kOverheadBytes = 128;  // of each entry, link and counter

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
  const std::lock_guard lock(mutex_);
  erase(scope, name);
  if (bytes_ + bytes > bytes_max_) return false;
  bytes_ += bytes;
  scopes_[scope].insert_or_assign(name, Entry{incarnation, std::move(report), bytes});
  return true;
}

void Reports::forget(std::string_view scope, std::string_view name) {
  const std::lock_guard lock(mutex_);
  erase(scope, name);
}

void Reports::erase(std::string_view scope, std::string_view name) {
  const auto of_scope = scopes_.find(scope);
  if (of_scope == scopes_.end()) return;
  const auto it = of_scope->second.find(name);
  if (it == of_scope->second.end()) return;
  bytes_ -= it->second.bytes;
  of_scope->second.erase(it);
  if (of_scope->second.empty()) scopes_.erase(of_scope);
}

void Reports::visit(std::string_view scope, std::string_view after, const Visitor& visitor) const {
  const std::lock_guard lock(mutex_);
  const auto of_scope = scopes_.find(scope);
  if (of_scope == scopes_.end()) return;
  for (auto it = of_scope->second.upper_bound(after); it != of_scope->second.end(); ++it) {
    if (!visitor(it->first, it->second.incarnation, it->second.report)) return;
  }
}

void Reports::clear() {
  const std::lock_guard lock(mutex_);
  scopes_.clear();
  bytes_ = 0;
}

}  // namespace slime::ctrl
