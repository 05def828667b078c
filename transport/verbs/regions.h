#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "transport/memory.h"
#include "transport/owned_memory.h"
#include "transport/region_uses.h"
#include "transport/verbs/context.h"
#include "transport/verbs/device.h"

namespace slime::transport::verbs {

// Returns the size of one part of a region, in bytes. A region that is too large to be registered
// at once is registered in parts of this size, a multiple of 2 MiB; only the last part may be
// shorter. Both sides compute the size from the region's length and the number of parts. Accepts
// all arguments, because a peer chose them.
std::uint64_t part_bytes(std::uint64_t length_bytes, std::size_t parts);
inline constexpr std::size_t kMaxParts = 8;

// Packs the key of a verbs region: the rkey of each part (4 bytes each), then the address of the
// region's first byte (8 bytes).
PackedKey pack_keys(std::span<const std::uint32_t> rkeys, std::uint64_t base);
// Unpacks a key that pack_keys() packed. Returns nothing for other bytes, or if the region would
// end beyond the address space.
std::optional<RemoteAccess> unpack_keys(const PackedKey& packed, std::uint64_t length_bytes);

// Memory that is registered with the adapter, in one or several parts. Several regions can share a
// registration. Thread: any.
class Registration {
 public:
  // Registers memory. Errors: kInvalidArgument (needs more than 8 parts), kUnimplemented (this
  // machine cannot register memory of this kind), otherwise by errno; the text for ENOMEM has
  // advice on `ulimit -l`.
  static Result<std::shared_ptr<Registration>> create(DeviceState& device,
                                                      const std::shared_ptr<Context>& context,
                                                      std::byte* data, std::uint64_t bytes, Rights rights,
                                                      MemoryKind kind);
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration();

  // Ends the registration. Returns 0 if no byte can move through it any more; otherwise the errno
  // value for a part that is still registered: call again.
  int deregister();
  // Gives up the parts that are still registered: the destructor does not try to end them again.
  void abandon();

  struct LocalKey {
    std::uint32_t lkey = 0;
    std::uint64_t bytes = 0;
  };
  // Returns the local key for the byte at `offset`, and how many bytes from there it covers. After
  // the registration has ended, the adapter refuses the key.
  [[nodiscard]] LocalKey local_key(std::uint64_t offset) const {
    return parts_ == 1 ? LocalKey{local_keys_[0], bytes_ - offset} : key_of_part(offset);
  }
  [[nodiscard]] std::uint8_t parts() const { return parts_; }
  [[nodiscard]] std::uint32_t remote_key(std::uint8_t part) const { return remote_keys_[part]; }
  [[nodiscard]] const std::byte* data() const { return data_; }

 private:
  [[nodiscard]] LocalKey key_of_part(std::uint64_t offset) const;
  Registration(std::shared_ptr<Context> context, const std::byte* data, std::uint64_t bytes,
               std::uint8_t parts)
      : context_(std::move(context)),
        data_(data),
        bytes_(bytes),
        part_bytes_(part_bytes(bytes, parts)),
        parts_(parts) {}

  const std::shared_ptr<Context> context_;
  const std::byte* const data_;
  const std::uint64_t bytes_;
  const std::uint64_t part_bytes_;
  const std::uint8_t parts_;
  std::array<std::uint32_t, kMaxParts> local_keys_{};
  std::array<std::uint32_t, kMaxParts> remote_keys_{};
  Mutex mutex_;
  std::vector<ibv_mr*> mrs_ SLIME_GUARDED_BY(mutex_);  // not deregistered
};

// A region as its device keeps it, to register it again after the device was opened again.
// Endpoints read `registration` without the lock, because it changes only while the device has no
// endpoints.
struct RegionRecord {
  RegionRecord(std::byte* memory, std::uint64_t length, Rights given, MemoryKind of, bool in_allocation)
      : data(memory), bytes(length), rights(given), kind(of), shares(in_allocation) {}
  // Registers the region with `context`, or takes the registration of its allocation there. Does
  // not lock.
  Status register_with(DeviceState& device, const std::shared_ptr<Context>& context);
  void register_again(DeviceState& device, const std::shared_ptr<Context>& context);

  std::byte* const data;
  const std::uint64_t bytes;
  const Rights rights;
  const MemoryKind kind;
  const bool shares;  // uses the registration of an allocation

  Mutex mutex;                                 // guards the members below
  std::shared_ptr<Registration> registration;  // null: not registered now, and `missing` says why
  std::uint64_t first = 0;                     // offset of the region within the registration
  std::uint32_t useless_key = 0;               // if the registration is shared
  bool allocates = false;                      // regions inside of it may share the registration
  bool closed SLIME_GUARDED_BY(mutex) = false;
  Status missing;
  std::atomic<bool> usable{false};  // `missing` is OK; readable without the lock
};

// A DeviceRegion of the verbs provider.
class VerbsRegion final : public DeviceRegion::Impl {
 public:
  // Makes a region with a registration of its own. `owned`: the memory, if allocate() made it;
  // empty if it is the caller's.
  static Result<std::unique_ptr<VerbsRegion>> create(std::shared_ptr<DeviceState> device, std::byte* data,
                                                     std::uint64_t bytes, Rights rights, MemoryKind kind,
                                                     OwnedMemory owned);
  // Makes a region that shares the registration of the allocation around it. Peers may not use the
  // region.
  static Result<std::unique_ptr<VerbsRegion>> share(std::shared_ptr<DeviceState> device, std::byte* data,
                                                    std::uint64_t bytes);
  ~VerbsRegion() override;

  Status close(Nanos bound) override;
  RegionDescriptor describe() const override;
  Status registered() const override;
  int memory_fd() const override { return owned_.fd(); }

  // A local key of the region, and how many bytes the key covers. local_key() returns it for the
  // byte at `offset`. Thread: the loop that posts, while an operation uses the region.
  using LocalKey = Registration::LocalKey;
  [[nodiscard]] bool has_local_key() const { return record_->registration != nullptr; }
  [[nodiscard]] LocalKey local_key(std::uint64_t offset) const {
    LocalKey key = record_->registration->local_key(record_->first + offset);
    if (key.bytes > length_bytes - offset) key.bytes = length_bytes - offset;
    return key;
  }

 private:
  struct Closing;
  VerbsRegion(std::shared_ptr<DeviceState> device, std::shared_ptr<RegionRecord> record, Handle id,
              OwnedMemory owned);
  static Result<std::unique_ptr<VerbsRegion>> make(std::shared_ptr<DeviceState> device,
                                                   std::shared_ptr<RegionRecord> record, OwnedMemory owned);
  int end_registration(const Closing& closing, bool& all_reset);
  Status give_up(int error);

  const std::shared_ptr<DeviceState> device_;
  const Handle id_;
  OwnedMemory owned_;
  const std::shared_ptr<RegionRecord> record_;
  std::shared_ptr<Registration> ending_;  // the registration when the region was closed
  RegionUses uses_;
  bool closed_ = false;
  Status outcome_;
};

// Returns the local region of a copy that PostChecks has accepted.
inline VerbsRegion& region_of(const CopyBlock& copy) {
  return *static_cast<VerbsRegion*>(copy.local->impl());
}

}  // namespace slime::transport::verbs
