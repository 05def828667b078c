#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/fork_guard.h"
#include "agent/memory/devices.h"
#include "agent/memory/registrations.h"
#include "agent/peer_agent.h"
#include "base/mutex.h"

namespace slime {

namespace agent {

// Notified when a region starts to close. Thread: the closing thread.
class RegionOwner {
 public:
  virtual void on_region_closing(const MemoryRegion::State& region) noexcept = 0;

 protected:
  ~RegionOwner() = default;
};

}  // namespace agent

// One piece of registered memory, and the owner to notify when it closes. Shared by the handle, the
// operations that use the region, and the table of published names. Thread: any.
struct MemoryRegion::State : std::enable_shared_from_this<MemoryRegion::State> {
  State(std::shared_ptr<agent::Devices> of, std::weak_ptr<agent::RegionOwner> region_owner,
        agent::Registrations all)
      : devices(std::move(of)), owner(std::move(region_owner)), registrations(std::move(all)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
  Status close(Nanos bound);
  // Registers the memory with devices that came into use after the region was made, unless the
  // region is closed. Waits for the adapter; close() waits until it returns.
  void complete();
  [[nodiscard]] bool closed() const { return closing_.load(std::memory_order_acquire); }
  // Keep the state alive from pin() to unpin(), without an atomic operation while it is pinned
  // already. Pairs may overlap. Thread: the loop of the agent.
  void pin() {
    if (pins_++ == 0) pinned_ = shared_from_this();
  }
  void unpin() {
    if (--pins_ == 0) const auto last = std::move(pinned_);
  }

  const std::shared_ptr<agent::Devices> devices;  // outlives the registrations
  const std::weak_ptr<agent::RegionOwner> owner;
  agent::Registrations registrations;
  const agent::ForkGuard guard;

 private:
  std::atomic<bool> closing_{false};
  Mutex close_mutex_;  // one close() or complete() at a time
  std::size_t pins_ = 0;
  std::shared_ptr<State> pinned_;  // this state, while pins_ > 0
};

namespace agent {

using RegionState = std::shared_ptr<MemoryRegion::State>;

// A reference to a region, which keeps the state of the region alive after pin() or count(). Before
// that the maker's handle must keep it alive. Thread: one.
class HeldRegion {
 public:
  explicit HeldRegion(MemoryRegion::State& region) : region_(&region) {}
  HeldRegion(const HeldRegion&) = delete;
  HeldRegion& operator=(const HeldRegion&) = delete;
  ~HeldRegion() {
    if (pinned_) region_->unpin();
  }
  // Keeps the state alive. Thread: the loop of the agent, where this object must then be destroyed.
  void pin() {
    if (!std::exchange(pinned_, true)) region_->pin();
  }
  // Keeps the state alive. Thread: any.
  void count() {
    if (!counted_) counted_ = region_->shared_from_this();
  }
  MemoryRegion::State* operator->() const { return region_; }

 private:
  MemoryRegion::State* const region_;
  RegionState counted_;
  bool pinned_ = false;
};

// All regions of an agent, and the names under which they are published. Thread: any.
class RegionTable {
 public:
  void add(const RegionState& region);
  Status publish(std::string_view name, const RegionState& region);
  Status unpublish(std::string_view name);
  // Removes a region. Returns its names.
  std::vector<std::string> remove(const MemoryRegion::State& region);
  // Returns the descriptor of the region with this name, for a peer that is connected over
  // `device`. Errors: kNotFound, or the reason why the memory is not registered with the device.
  Result<transport::RegionDescriptor> describe(std::string_view name, std::size_t device) const;
  // Returns all regions, for closing them.
  std::vector<RegionState> all() const;
  [[nodiscard]] std::size_t published() const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, RegionState, std::less<>> names_ SLIME_GUARDED_BY(mutex_);
  struct Known {
    std::weak_ptr<MemoryRegion::State> region;
    // names of the region, so that remove() need not search all names
    std::vector<std::string> names;
  };
  std::map<const MemoryRegion::State*, Known> regions_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace agent
}  // namespace slime
