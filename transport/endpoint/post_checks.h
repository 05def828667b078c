#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "transport/memory.h"

namespace slime::transport {

// Checks what a post names before anything is posted, and words the refusals of an endpoint.
// Thread: the loop.
class PostChecks {
 public:
  // `device`: what local regions must be registered with. Borrows `peer_name`.
  PostChecks(const void* device, std::uint64_t endpoint_id, std::string_view peer_name)
      : device_(device), endpoint_id_(endpoint_id), peer_name_(peer_name) {}

  // Returns OK if each copy names a local region of the device and a remote one of this endpoint,
  // within the bounds of both, and the peer allows `need`.
  [[nodiscard]] Status copies(std::span<const CopyBlock> copies, Rights need) const;

  // Count the use of the copies' local regions by one operation. A run of copies with one region
  // counts once: batches mostly name few regions. add_uses() is false once a region was closed.
  static bool add_uses(std::span<const CopyBlock> copies);
  static void drop_uses(std::span<const CopyBlock> copies);
  // Returns whether a copy uses the region whose uses these are.
  static bool use(std::span<const CopyBlock> copies, const RegionUses* uses);

  // Binds a region of the peer to this endpoint. `access`: its key as the provider has unpacked it;
  // nothing for a key that is not of this provider, which is refused.
  [[nodiscard]] Result<RemoteRegion> import(const RegionDescriptor& descriptor,
                                            std::optional<RemoteAccess> access) const;

  // What posts are refused with.
  [[nodiscard]] Status too_long(std::uint64_t bytes, std::uint32_t most) const;
  [[nodiscard]] Status closed_here() const;
  [[nodiscard]] Status too_many() const;
  [[nodiscard]] Status no_credit() const;
  [[nodiscard]] static Status region_closed();
  // What operations end with that a close cut short.
  [[nodiscard]] Status cut_by_close() const;

 private:
  [[nodiscard]] Status local(const CopyBlock& copy) const;

  const void* const device_;
  const std::uint64_t endpoint_id_;
  const std::string_view peer_name_;
};

}  // namespace slime::transport
