#include "transport/provider.h"

#include "base/str.h"
#include "transport/outage.h"

namespace slime::transport {
namespace {

Status out_of_range(std::string_view field, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  return Status(Code::kInvalidArgument,
                str("PortOptions::", field, " is ", value, ", must be ", least, " to ", most));
}

}  // namespace

Status PortOptions::validate() const {
  using namespace limits;
  if (slot_bytes < kMinSlotBytes || slot_bytes > kMaxSlotBytes)
    return out_of_range("slot_bytes", slot_bytes, kMinSlotBytes, kMaxSlotBytes);
  if (pool_slots < 1 || pool_slots > kMaxPoolSlots)
    return out_of_range("pool_slots", pool_slots, 1, kMaxPoolSlots);
  if (base_credits < 1 || base_credits > pool_slots)
    return out_of_range("base_credits", base_credits, 1, pool_slots);
  if (max_credits < base_credits || max_credits > pool_slots)
    return out_of_range("max_credits", max_credits, base_credits, pool_slots);
  return check_outage("PortOptions::outage_tolerated", outage_tolerated);
}

Result<std::unique_ptr<Provider>> make_provider(std::string_view name, ProviderTable table,
                                                const ProviderSettings& settings) {
  std::string known;
  for (const ProviderEntry& entry : table) {
    if (entry.name == name) return entry.make(settings);
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  return Status(Code::kNotFound, str("no provider is called '", name, "'; this build has: ", known));
}

std::vector<std::string> provider_names() {
  std::vector<std::string> out;
  for (const ProviderEntry& entry : provider_table()) out.emplace_back(entry.name);
  return out;
}

}  // namespace slime::transport
