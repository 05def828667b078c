#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "transport/limits.h"

namespace slime::transport {

class RegionUses;

// Rights of peers on a region. Its owner needs no right to use it as the local side of its own
// operations.
enum class Rights : std::uint8_t { kLocal = 0, kRemoteRead = 1, kRemoteWrite = 2, kReadWrite = 3 };
inline bool allows(Rights have, Rights need) {
  return (static_cast<std::uint8_t>(have) & static_cast<std::uint8_t>(need)) ==
         static_cast<std::uint8_t>(need);
}

enum class MemoryKind : std::uint8_t { kHost, kCuda };

// Pages of the host memory that Slime allocates. kHuge: huge pages of the machine's default size,
// all of them taken from the machine's pool (vm.nr_hugepages) at allocation.
enum class Pages : std::uint8_t { kDefault, kHuge };

// The keys and addresses by which peers reach a region, as packed by its provider. Only that
// provider reads the bytes. A value type; short keys need no allocation.
class PackedKey {
 public:
  static constexpr std::size_t kMaxBytes = 1024;

  PackedKey() = default;
  // Copies at most kMaxBytes.
  explicit PackedKey(Bytes bytes);
  [[nodiscard]] Bytes bytes() const { return long_ ? Bytes(*long_) : Bytes(short_).first(length_); }

 private:
  std::uint8_t length_ = 0;  // of short_
  std::array<std::byte, 23> short_{};
  std::shared_ptr<const ByteVector> long_;
};

// Describes a region to a peer so that the peer can use it: the wire form of a RemoteRegion. Sent
// only over an endpoint, never published, because any holder can use the region within its rights.
struct RegionDescriptor {
  Handle id;
  std::uint64_t length_bytes = 0;
  Rights rights = Rights::kLocal;
  PackedKey key;

  void encode(ByteWriter& out) const;
  [[nodiscard]] std::size_t encoded_bytes() const { return kHeaderBytes + key.bytes().size(); }
  // Returns nothing if the bytes are no valid descriptor: unknown rights, a key that is empty or
  // too long, generation 0, or too few bytes.
  static std::optional<RegionDescriptor> decode(ByteReader& in);
  static constexpr std::size_t kHeaderBytes = 8 + 8 + 1 + 2;
};

// The content of a PackedKey, unpacked by its provider.
struct RemoteAccess {
  std::uint64_t base = 0;  // the peer's address of byte 0; zero if the provider addresses by offset
  std::uint64_t key = 0;   // key of the whole region, or of its first part
  std::shared_ptr<const std::vector<std::uint64_t>> keys{};  // of all parts; null: there is one
};

// A region of the peer, as used over one connection. A value type, made by Endpoint::import_region.
// Valid for that endpoint only: operations on another endpoint end with kAborted.
class RemoteRegion {
 public:
  RemoteRegion() = default;
  RemoteRegion(const RegionDescriptor& region, RemoteAccess access, std::uint64_t endpoint_id)
      : id_(region.id),
        length_bytes_(region.length_bytes),
        access_(std::move(access)),
        endpoint_id_(endpoint_id),
        rights_(region.rights) {}
  [[nodiscard]] Handle id() const { return id_; }
  [[nodiscard]] std::uint64_t length_bytes() const { return length_bytes_; }
  [[nodiscard]] Rights rights() const { return rights_; }
  [[nodiscard]] const RemoteAccess& access() const { return access_; }      // for the provider
  [[nodiscard]] std::uint64_t endpoint_id() const { return endpoint_id_; }  // 0: none

 private:
  Handle id_;
  std::uint64_t length_bytes_ = 0;
  RemoteAccess access_;
  std::uint64_t endpoint_id_ = 0;
  Rights rights_ = Rights::kLocal;
};

// Returns kInvalidArgument for memory that cannot be a region: null, empty, or ending beyond the
// address space.
Status check_range(const void* data, std::size_t bytes);

// A registration of memory with a device. Owns the registration. Owns the memory only if
// Device::allocate made it. Must not be moved while a posted operation names it. Thread: any, but
// one at a time for each object.
class DeviceRegion {
 public:
  // The provider's side of a registration.
  class Impl {
   public:
    Impl() = default;
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    virtual ~Impl() = default;
    // See DeviceRegion::close.
    virtual Status close(Nanos bound) = 0;
    virtual RegionDescriptor describe() const = 0;
    // Returns OK if connections of the device can use the registration now, else the reason why
    // not.
    virtual Status registered() const { return {}; }
    // Returns the memfd behind memory that allocate() made, else -1. Borrowed.
    virtual int memory_fd() const { return -1; }

    // the device of the registration; only the provider knows the type that this points to
    const void* device = nullptr;
    // counts the posted operations that use this region; owned by the provider
    RegionUses* uses = nullptr;
    std::byte* data = nullptr;
    std::uint64_t length_bytes = 0;
    Rights rights = Rights::kLocal;
    MemoryKind kind = MemoryKind::kHost;
  };

  DeviceRegion() = default;
  explicit DeviceRegion(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
  DeviceRegion(DeviceRegion&&) noexcept = default;
  DeviceRegion& operator=(DeviceRegion&& other) noexcept {
    if (this != &other) {
      if (impl_) impl_->close(limits::kCloseBound).ignore();
      impl_ = std::move(other.impl_);
    }
    return *this;
  }
  ~DeviceRegion() {
    if (impl_) impl_->close(limits::kCloseBound).ignore();
  }

  // Ends the registration. Once close() has returned, with any status, peers neither write nor read
  // a byte of the memory. New uses are refused at once. Waits up to `bound` for operations that use
  // the memory, then resets the endpoints that still use it and returns kDeadlineExceeded.
  // Idempotent. May be called on the loop, where it cannot wait: it resets the endpoints of such
  // operations at once.
  Status close(Nanos bound = limits::kCloseBound) { return impl_ ? impl_->close(bound) : Status(); }

  [[nodiscard]] bool valid() const { return impl_ != nullptr; }
  [[nodiscard]] std::byte* data() const { return impl_->data; }
  [[nodiscard]] std::uint64_t length_bytes() const { return impl_->length_bytes; }
  [[nodiscard]] MutableBytes bytes() const { return {impl_->data, impl_->length_bytes}; }
  [[nodiscard]] Rights rights() const { return impl_->rights; }
  [[nodiscard]] MemoryKind kind() const { return impl_->kind; }
  [[nodiscard]] RegionDescriptor describe() const { return impl_->describe(); }
  [[nodiscard]] Status registered() const { return impl_->registered(); }
  [[nodiscard]] int memory_fd() const { return impl_->memory_fd(); }
  [[nodiscard]] Impl* impl() const { return impl_.get(); }  // for the provider that made it

 private:
  std::unique_ptr<Impl> impl_;
};

// One block of a batch. A read copies it from remote to local, a write from local to remote.
struct CopyBlock {
  const DeviceRegion* local = nullptr;
  std::uint64_t local_offset = 0;
  const RemoteRegion* remote = nullptr;
  std::uint64_t remote_offset = 0;
  std::uint64_t length_bytes = 0;
};

}  // namespace slime::transport
