#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "transport/limits.h"

namespace slime::transport {

class RegionUses;

// What peers may do with a region. Its owner may always use it as the local side of its own operations.
enum class Rights : std::uint8_t { kLocal = 0, kRemoteRead = 1, kRemoteWrite = 2, kReadWrite = 3 };
inline bool allows(Rights have, Rights need) {
  return (static_cast<std::uint8_t>(have) & static_cast<std::uint8_t>(need)) ==
         static_cast<std::uint8_t>(need);
}

enum class MemoryKind : std::uint8_t { kHost, kCuda };

// Of what host memory that Slime allocates is made. kHuge: huge pages of the machine's default size, from its
// pool (vm.nr_hugepages). They are taken, all of them, when the memory is allocated.
enum class Pages : std::uint8_t { kDefault, kHuge };

inline constexpr std::size_t kMaxRegionKeys = 8;

// What the owner of a region tells a peer so that the peer can use it: the wire form of a RemoteRegion. Sent
// only over an endpoint, never published: whoever holds it can use the region with its rights.
struct RegionDescriptor {
  Handle id;
  std::uint64_t length_bytes = 0;
  Rights rights = Rights::kLocal;
  std::uint64_t base = 0;  // the provider's address of byte 0; zero where the provider addresses by offset
  std::uint8_t key_count = 0;
  std::array<std::uint64_t, kMaxRegionKeys> keys{};

  void encode(ByteWriter& out) const;
  // Nothing for bytes that are not a descriptor: unknown rights, key count out of range, generation 0,
  // missing bytes.
  static std::optional<RegionDescriptor> decode(ByteReader& in);
  static constexpr std::size_t kMaxEncodedBytes = 8 + 8 + 1 + 8 + 1 + 8 * kMaxRegionKeys;
};

// A peer's region as one connection sees it. A value; made by Endpoint::import_region and good for that
// endpoint only: on any other one operations answer kAborted.
class RemoteRegion {
 public:
  RemoteRegion() = default;
  RemoteRegion(const RegionDescriptor& descriptor, std::uint64_t endpoint_id)
      : descriptor_(descriptor), endpoint_id_(endpoint_id) {}
  [[nodiscard]] std::uint64_t length_bytes() const { return descriptor_.length_bytes; }
  [[nodiscard]] Rights rights() const { return descriptor_.rights; }
  [[nodiscard]] const RegionDescriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] std::uint64_t endpoint_id() const { return endpoint_id_; }  // 0: none

 private:
  RegionDescriptor descriptor_;
  std::uint64_t endpoint_id_ = 0;
};

// kInvalidArgument for memory that no region can be: null, empty, or ending beyond the address space.
Status check_range(const void* data, std::size_t bytes);

// One registration of memory with a device. Owns the registration; owns the memory only if Device::allocate
// made it. Movable, but not while a posted operation names it. Thread: any; one object from one thread at a
// time.
class MemoryRegion {
 public:
  // The provider's side of a registration.
  class Impl {
   public:
    Impl() = default;
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    virtual ~Impl() = default;
    // See MemoryRegion::close.
    virtual Status close(Nanos bound) = 0;
    virtual RegionDescriptor describe() const = 0;
    // OK, or why no connection of the device can use it now.
    virtual Status registered() const { return {}; }
    // The memfd behind memory that allocate() made, else -1. Borrowed.
    virtual int memory_fd() const { return -1; }

    const void* device = nullptr;  // what it is registered with, as its provider names that
    RegionUses* uses = nullptr;    // counts the posted operations on it; owned by the provider
    std::byte* data = nullptr;
    std::uint64_t length_bytes = 0;
    Rights rights = Rights::kLocal;
    MemoryKind kind = MemoryKind::kHost;
  };

  MemoryRegion() = default;
  explicit MemoryRegion(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
  MemoryRegion(MemoryRegion&&) noexcept = default;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept {
    if (this != &other) {
      if (impl_) impl_->close(limits::kCloseBound).ignore();
      impl_ = std::move(other.impl_);
    }
    return *this;
  }
  ~MemoryRegion() {
    if (impl_) impl_->close(limits::kCloseBound).ignore();
  }

  // Ends the registration. Once it returns, no byte of any peer lands in the memory or is read from it,
  // whatever the status. New uses are refused at once; operations that use it are waited for up to `bound`,
  // then the endpoints that still use it are reset and kDeadlineExceeded says so. Idempotent. May be called
  // on the loop, where nothing can be waited for: uses under way then reset their endpoints at once.
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

// One block of a batch. For read, bytes go remote -> local; for write, local -> remote.
struct Copy {
  const MemoryRegion* local = nullptr;
  std::uint64_t local_offset = 0;
  const RemoteRegion* remote = nullptr;
  std::uint64_t remote_offset = 0;
  std::uint64_t length_bytes = 0;
};

}  // namespace slime::transport
