#include "transport/endpoint/post_checks.h"

#include "base/str.h"
#include "transport/copy_checks.h"
#include "transport/limits.h"

namespace slime::transport {

Status PostChecks::region_closed() { return {Code::kInvalidArgument, "the local region is closed"}; }

Status PostChecks::local(const CopyBlock& copy) const {
  const DeviceRegion::Impl& region = *copy.local->impl();
  if (region.device != device_)
    return {Code::kInvalidArgument, "the local region is registered with another device"};
  return region.uses->revoked() ? region_closed() : Status();
}

// Checks regions once for each run of copies with the same two: most batches name few regions.
bool PostChecks::are_right(std::span<const CopyBlock> copies, Rights need, bool& one_pair) const {
  const DeviceRegion* local = nullptr;
  const RemoteRegion* remote = nullptr;
  std::uint64_t local_bytes = 0;
  std::uint64_t remote_bytes = 0;
  std::size_t runs = 0;
  for (const CopyBlock& copy : copies) {
    if (copy.local != local || copy.remote != remote || runs == 0) {
      if (!copy_is_right(copy, need, endpoint_id_)) return false;
      const DeviceRegion::Impl& region = *copy.local->impl();
      if (region.device != device_ || region.uses->revoked()) return false;
      local = copy.local;
      remote = copy.remote;
      local_bytes = local->length_bytes();
      remote_bytes = remote->length_bytes();
      ++runs;
    }
    if (!in_bounds(copy.local_offset, copy.length_bytes, local_bytes) ||
        !in_bounds(copy.remote_offset, copy.length_bytes, remote_bytes))
      return false;
  }
  one_pair = runs == 1;
  return true;
}

// Returns the error of the first copy that are_right() refused.
Status PostChecks::explain(std::span<const CopyBlock> copies, Rights need) const {
  const DeviceRegion* checked = nullptr;
  for (const CopyBlock& copy : copies) {
    SLIME_TRY(check_copy(copy, need, endpoint_id_, peer_name_));
    if (copy.local != checked) SLIME_TRY(local(copy));
    checked = copy.local;
  }
  return {};
}

bool PostChecks::use(std::span<const CopyBlock> copies, const RegionUses* uses) {
  for (const CopyBlock& copy : copies) {
    if (copy.local->impl()->uses == uses) return true;
  }
  return false;
}

Result<RemoteRegion> PostChecks::import(const RegionDescriptor& descriptor,
                                        std::optional<RemoteAccess> access) const {
  if (!access || descriptor.id.generation == 0 || descriptor.length_bytes == 0 ||
      static_cast<std::uint8_t>(descriptor.rights) > static_cast<std::uint8_t>(Rights::kReadWrite))
    return Status(Code::kInvalidArgument,
                  str("not a region of ", peer_name_, " on this transport: wrong provider, or damaged"));
  return RemoteRegion(descriptor, *std::move(access), endpoint_id_);
}

Status PostChecks::too_long(std::uint64_t bytes, std::uint32_t most) const {
  return {Code::kInvalidArgument,
          str("a message of ", bytes, " bytes; ", peer_name_, " takes at most ", most)};
}

Status PostChecks::closed_here() const {
  return {Code::kCancelled, str("the connection to ", peer_name_, " was closed here")};
}

Status PostChecks::cut_by_close() const {
  return {Code::kCancelled, str("the connection to ", peer_name_, " was closed before this had completed")};
}

Status PostChecks::too_many() const {
  return {Code::kResourceExhausted, str(limits::kMaxOperations, " operations are in flight to ", peer_name_)};
}

Status PostChecks::no_credit() const {
  return {Code::kResourceExhausted,
          str(peer_name_, " has no free receive slot for us now: its credits are used up")};
}

}  // namespace slime::transport
