#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/admission.h"
#include "agent/memory/devices.h"
#include "agent/memory/region.h"
#include "agent/operations/old_values.h"
#include "agent/peer_agent.h"
#include "base/function.h"

namespace slime::agent {

class Registrar;

// The registered memory of an agent: makes regions, publishes their names to peers and to the
// registry, and withdraws the names when a region closes. Part of an agent, which outlives it.
// Thread: any.
class AgentMemory final : public RegionOwner {
 public:
  // Tells connected peers, on the loop, that these names are withdrawn.
  using Revoke = UniqueFunction<void(std::vector<std::string> names)>;

  // `owner` is the agent.
  AgentMemory(const std::weak_ptr<void>& owner, Admission& admission, std::shared_ptr<Devices> devices,
              Revoke revoke);
  AgentMemory(const AgentMemory&) = delete;
  AgentMemory& operator=(const AgentMemory&) = delete;

  // Announces published names to this registry, too. Call before the first publish().
  void announce_to(Registrar& registrar) { registrar_ = &registrar; }

  Result<MemoryRegion> allocate(std::size_t bytes, Rights rights, MemoryKind kind, Pages pages);
  Result<MemoryRegion> register_memory(void* data, std::size_t bytes, Rights rights, MemoryKind kind);
  // Publishes the region under `name`. Returns the number of the change, for
  // Registrar::wait_announced(); zero without a registry.
  Result<std::uint64_t> publish(std::string_view name, const MemoryRegion& region);
  Status unpublish(std::string_view name);

  // Checks that a batch is not too long and that each block has a local region of this agent. The
  // endpoint checks the rest. Errors: kInvalidArgument.
  [[nodiscard]] Status check_blocks(std::span<const Copy> copies) const;
  // Checks that `local` is a region of this agent. Errors: kInvalidArgument.
  [[nodiscard]] Status check_local(const MemoryRegion& local) const;
  // Returns 8 bytes for the old value of one atomic operation.
  Result<OldValues::Place> place_for_old_value();

  [[nodiscard]] const RegionTable& regions() const { return regions_; }
  // Closes all regions, each within its bound. Call after the last connection has ended.
  void close_regions(Nanos bound);

  void on_region_closing(const MemoryRegion::State& region) noexcept override;

 private:
  Result<MemoryRegion> keep(Result<Registrations> registrations);
  void withdraw(std::vector<std::string> names);

  const std::weak_ptr<RegionOwner> self_;  // locking it keeps the agent alive
  Admission& admission_;
  const std::shared_ptr<Devices> devices_;
  Revoke revoke_;
  RegionTable regions_;
  const std::shared_ptr<OldValues> old_values_ = std::make_shared<OldValues>();
  Registrar* registrar_ = nullptr;
};

}  // namespace slime::agent
