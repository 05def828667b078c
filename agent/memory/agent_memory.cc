#include "agent/memory/agent_memory.h"

#include <utility>

#include "agent/limits.h"
#include "agent/registry/registrar.h"
#include "base/str.h"

namespace slime::agent {

AgentMemory::AgentMemory(const std::weak_ptr<void>& owner, Admission& admission,
                         std::shared_ptr<Devices> devices, Revoke revoke)
    : self_(std::shared_ptr<RegionOwner>(owner.lock(), this)),
      admission_(admission),
      devices_(std::move(devices)),
      revoke_(std::move(revoke)) {}

Result<MemoryRegion> AgentMemory::keep(Result<Registrations> registrations) {
  if (!registrations) return std::move(registrations).error();
  auto state = std::make_shared<MemoryRegion::State>(devices_, self_, std::move(*registrations));
  regions_.add(state);
  state->complete();  // for a device whose first connection came before the table had the region
  return MemoryRegion(std::move(state));
}

Result<MemoryRegion> AgentMemory::allocate(std::size_t bytes, Rights rights, MemoryKind kind, Pages pages) {
  const Admission::Pass pass(admission_);
  if (!pass) return admission_.refusal();
  return keep(devices_->allocate(bytes, rights, kind, pages));
}

Result<MemoryRegion> AgentMemory::register_memory(void* data, std::size_t bytes, Rights rights,
                                                  MemoryKind kind) {
  const Admission::Pass pass(admission_);
  if (!pass) return admission_.refusal();
  return keep(devices_->register_memory(data, bytes, rights, kind));
}

Result<OldValues::Place> AgentMemory::place_for_old_value() {
  const Admission::Pass pass(admission_);
  if (!pass) return admission_.refusal();
  return old_values_->take([this](std::size_t bytes) {
    return keep(devices_->allocate(bytes, Rights::kLocal, MemoryKind::kHost));
  });
}

Status AgentMemory::check_blocks(std::span<const Copy> copies) const {
  if (copies.size() > limits::kBatchBlocks)
    return Status(Code::kInvalidArgument,
                  str("a batch of ", copies.size(), " blocks; at most ", limits::kBatchBlocks));
  const MemoryRegion* checked = nullptr;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (&copies[i].local == checked) continue;
    checked = &copies[i].local;
    Status status = check_local(*checked);
    if (!status.ok()) return std::move(status).with_context(str("block ", i));
  }
  return {};
}

Status AgentMemory::check_local(const MemoryRegion& local) const {
  if (!local.valid()) return Status(Code::kInvalidArgument, "no local region");
  if (local.state()->devices != devices_)
    return Status(Code::kInvalidArgument, "the local region is another agent's");
  return {};
}

Result<std::uint64_t> AgentMemory::publish(std::string_view name, const MemoryRegion& region) {
  SLIME_TRY(ctrl::check_name("region name", name));
  if (!region.valid()) return Status(Code::kInvalidArgument, "an empty region");
  const Admission::Pass pass(admission_);
  if (!pass) return admission_.refusal();
  if (region.state()->devices != devices_) return Status(Code::kInvalidArgument, "a region of another agent");
  if (region.rights() == Rights::kLocal)
    return Status(Code::kInvalidArgument,
                  str("region \"", name, "\" gives peers no rights: nothing to publish"));
  SLIME_TRY(regions_.publish(name, region.state()));
  if (registrar_ == nullptr) return std::uint64_t{0};
  return registrar_->put_region({.name = std::string(name),
                                 .length_bytes = region.length_bytes(),
                                 .rights = static_cast<ctrl::RegionRights>(region.rights())});
}

Status AgentMemory::unpublish(std::string_view name) {
  const Admission::Pass pass(admission_);
  if (!pass) return admission_.refusal();
  SLIME_TRY(regions_.unpublish(name));
  withdraw({std::string(name)});
  return {};
}

void AgentMemory::on_region_closing(const MemoryRegion::State& region) noexcept {
  std::vector<std::string> names = regions_.remove(region);
  const Admission::Pass pass(admission_);
  if (pass && !names.empty()) withdraw(std::move(names));
}

void AgentMemory::withdraw(std::vector<std::string> names) {
  if (registrar_ != nullptr) registrar_->drop_regions(names);
  revoke_(std::move(names));
}

void AgentMemory::close_regions(Nanos bound) {
  for (const RegionState& region : regions_.all()) region->close(bound).ignore();
}

}  // namespace slime::agent
