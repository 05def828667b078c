#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "transport/memory.h"
#include "transport/region_uses.h"

namespace slime::transport {

// Checks the arguments of a post before anything is posted, and writes the error texts of an
// endpoint. Thread: the loop.
class PostChecks {
 public:
  // `device`: local regions must be registered with it. Borrows `peer_name`.
  PostChecks(const void* device, std::uint64_t endpoint_id, std::string_view peer_name)
      : device_(device), endpoint_id_(endpoint_id), peer_name_(peer_name) {}

  // Returns OK if each copy names a local region of the device and a remote one of this endpoint,
  // within the bounds of both, and the peer allows `need`.
  [[nodiscard]] Status copies(std::span<const CopyBlock> copies, Rights need) const {
    bool one_pair = false;
    return check(copies, need, one_pair);
  }
  // The same. Sets `one_pair`: whether all copies name the same two regions.
  [[nodiscard]] Status check(std::span<const CopyBlock> copies, Rights need, bool& one_pair) const {
    return are_right(copies, need, one_pair) ? Status() : explain(copies, need);
  }

  // add_uses() counts a use of each copy's local region; drop_uses() takes these uses back.
  // Consecutive copies with the same region count once, because most batches name few regions.
  // add_uses() returns false, and counts nothing, if a region is closed.
  static bool add_uses(std::span<const CopyBlock> copies) {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (i > 0 && copies[i].local == copies[i - 1].local) continue;
      if (!copies[i].local->impl()->uses->add_use()) {
        drop_uses(copies.first(i));
        return false;
      }
    }
    return true;
  }
  static void drop_uses(std::span<const CopyBlock> copies) {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (i > 0 && copies[i].local == copies[i - 1].local) continue;
      copies[i].local->impl()->uses->drop_use();
    }
  }
  // Returns whether one of the copies uses the region to which `uses` belongs.
  static bool use(std::span<const CopyBlock> copies, const RegionUses* uses);

  // Makes a RemoteRegion for this endpoint from a descriptor that the peer sent. `access`: the
  // descriptor's key, unpacked by the provider; empty if the key is of another provider, which is
  // refused.
  [[nodiscard]] Result<RemoteRegion> import(const RegionDescriptor& descriptor,
                                            std::optional<RemoteAccess> access) const;

  // These functions return the errors with which posts are refused.
  [[nodiscard]] Status too_long(std::uint64_t bytes, std::uint32_t most) const;
  [[nodiscard]] Status closed_here() const;
  [[nodiscard]] Status too_many() const;
  [[nodiscard]] Status no_credit() const;
  [[nodiscard]] static Status region_closed();
  // Returns the error of operations that close() ended before they had completed.
  [[nodiscard]] Status cut_by_close() const;

 private:
  [[nodiscard]] bool are_right(std::span<const CopyBlock> copies, Rights need, bool& one_pair) const;
  [[nodiscard]] Status explain(std::span<const CopyBlock> copies, Rights need) const;
  [[nodiscard]] Status local(const CopyBlock& copy) const;

  const void* const device_;
  const std::uint64_t endpoint_id_;
  const std::string_view peer_name_;
};

}  // namespace slime::transport
