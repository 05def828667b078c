#include "agent/memory/registrations.h"

#include <algorithm>
#include <new>
#include <utility>

namespace slime::agent {

Registrations::~Registrations() {
  if (regions_.empty()) return;  // moved from
  close(limits::kDestructorBound).ignore();
  if (kept_) static_cast<void>(new (std::nothrow) transport::DeviceRegion(std::move(regions_[owner_])));
}

void Registrations::add(std::size_t device, transport::DeviceRegion region) {
  regions_[device] = std::move(region);
  // other threads may read any_ while a deferred device is added
  if (any_ == kNone || (device == owner_ && !deferred(device))) any_ = device;
  deferred_[device].store(false, std::memory_order_release);
}

void Registrations::miss(std::size_t device, Status why) {
  missing_[device] = std::move(why);
  deferred_[device].store(false, std::memory_order_release);
}

Status Registrations::missing(std::size_t device) const {
  if (deferred(device))
    return Status(Code::kUnavailable, "this memory is registered with that device at its first connection");
  if (regions_[device].valid()) return regions_[device].registered();
  if (!missing_[device].ok()) return missing_[device];
  return Status(Code::kUnimplemented, "this memory is not registered with that device");
}

Status Registrations::close(Nanos bound) {
  const TimePoint deadline = deadline_after(steady_clock().now(), bound);
  Status first;
  const auto end = [&](std::size_t device) {
    const Nanos left = std::max(deadline - steady_clock().now(), Nanos::zero());
    Status status = regions_[device].close(left);
    // The adapter's driver did not release the memory (transport/verbs/regions.cc).
    if (status.code() == Code::kInternal && device != owner_) kept_ = true;
    if (first.ok()) first = std::move(status);
  };
  for (std::size_t device = 0; device < regions_.size(); ++device) {
    if (device != owner_) end(device);
  }
  end(owner_);
  return first;
}

}  // namespace slime::agent
