#include "agent/memory/region.h"

#include <new>

#include "base/str.h"

namespace slime {

// -------------------------------------------------------------------------------------- the handle

MemoryRegion::MemoryRegion(std::shared_ptr<State> state) : state_(std::move(state)) {}
MemoryRegion::MemoryRegion(MemoryRegion&&) noexcept = default;

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  if (this != &other) {
    close().ignore();
    state_ = std::move(other.state_);
  }
  return *this;
}

MemoryRegion::~MemoryRegion() { close().ignore(); }

std::byte* MemoryRegion::data() const { return state_ ? state_->registrations.data() : nullptr; }
std::uint64_t MemoryRegion::length_bytes() const { return state_ ? state_->registrations.length_bytes() : 0; }
Rights MemoryRegion::rights() const { return state_ ? state_->registrations.rights() : Rights::kLocal; }
Status MemoryRegion::close(Nanos timeout) { return state_ ? state_->close(timeout) : Status(); }

// In a child of fork() the registration, its descriptors and its waiting threads belong to the
// parent. The child leaks its copies and must not deregister: the driver would deregister the
// parent's memory.
MemoryRegion::State::~State() {
  if (!guard.forked()) return;
  static_cast<void>(new (std::nothrow) std::shared_ptr<agent::Devices>(devices));
  static_cast<void>(new (std::nothrow) agent::Registrations(std::move(registrations)));
}

Status MemoryRegion::State::close(Nanos timeout) {
  if (guard.forked()) return guard.status();
  const bool first = !closing_.exchange(true, std::memory_order_acq_rel);
  if (first) {
    if (const auto told = owner.lock()) told->on_region_closing(*this);
  }
  const MutexLock lock(close_mutex_);  // a second close() waits for the first
  return registrations.close(timeout);
}

void MemoryRegion::State::complete() {
  if (closed()) return;  // close() may hold the mutex for its whole bound
  const MutexLock lock(close_mutex_);
  if (!closed()) devices->complete(registrations);
}

namespace agent {

// ------------------------------------------------------------------------------------------- names

void RegionTable::add(const RegionState& region) {
  const MutexLock lock(mutex_);
  regions_[region.get()].region = region;
}

Status RegionTable::publish(std::string_view name, const RegionState& region) {
  const MutexLock lock(mutex_);
  if (region->closed()) return Status(Code::kInvalidArgument, str("region \"", name, "\" is closed"));
  const auto [it, added] = names_.try_emplace(std::string(name), region);
  if (added) regions_[region.get()].names.emplace_back(name);
  if (it->second == region) return {};
  return Status(Code::kAlreadyExists, str("another region is published as \"", name, "\""));
}

Status RegionTable::unpublish(std::string_view name) {
  const MutexLock lock(mutex_);
  const auto it = names_.find(name);
  if (it == names_.end()) return Status(Code::kNotFound, str("no region is published as \"", name, "\""));
  std::erase(regions_[it->second.get()].names, name);
  names_.erase(it);
  return {};
}

std::vector<std::string> RegionTable::remove(const MemoryRegion::State& region) {
  std::vector<RegionState> dropped;  // destroyed after the lock is released
  const MutexLock lock(mutex_);
  const auto known = regions_.find(&region);
  if (known == regions_.end()) return {};
  std::vector<std::string> names = std::move(known->second.names);
  regions_.erase(known);
  for (const std::string& name : names) {
    const auto it = names_.find(name);
    dropped.push_back(std::move(it->second));
    names_.erase(it);
  }
  return names;
}

Result<transport::RegionDescriptor> RegionTable::describe(std::string_view name, std::size_t device) const {
  const MutexLock lock(mutex_);
  const auto it = names_.find(name);
  if (it == names_.end() || it->second->closed())
    return Status(Code::kNotFound, str("no region is published as \"", name, "\""));
  const Registrations& all = it->second->registrations;
  if (Status missing = all.missing(device); !missing.ok())
    return std::move(missing).with_context(str("region \"", name, "\""));
  return all.on(device).describe();
}

std::vector<RegionState> RegionTable::all() const {
  std::vector<RegionState> out;
  const MutexLock lock(mutex_);
  for (const auto& [key, known] : regions_) {
    if (auto alive = known.region.lock()) out.push_back(std::move(alive));
  }
  return out;
}

std::size_t RegionTable::published() const {
  const MutexLock lock(mutex_);
  return names_.size();
}

}  // namespace agent
}  // namespace slime
