#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/memory.h"
#include "transport/region_uses.h"
#include "transport/verbs/context.h"

namespace slime::transport::verbs {

// A region is registered in equal parts when it is larger than the device takes at once; part i has key i.
// Both sides compute the size of a part from the descriptor alone: a multiple of 2 MiB but for the last.
std::uint64_t part_bytes(std::uint64_t length_bytes, std::uint8_t key_count);

// One memory registration of part of a region, or of memory that several regions share. Deregistered with the
// last reference.
struct Registration {
  Registration(std::shared_ptr<Context> owner, ibv_mr* registered) : context(std::move(owner)), mr(registered) {}
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration();
  const std::shared_ptr<Context> context;
  ibv_mr* const mr;
};

// What the ports of a device do for its regions. Thread: any.
class RegionUsers {
 public:
  virtual ~RegionUsers() = default;
  // Resets the endpoints that have posted operations on the region, or (all) every endpoint.
  virtual void reset_users(const RegionUses* uses) = 0;
  [[nodiscard]] virtual std::shared_ptr<Loop> users_loop() const = 0;  // null: gone
};

// The provider's side of a MemoryRegion.
class VerbsRegion final : public MemoryRegion::Impl {
 public:
  ~VerbsRegion() override;
  Status close(Nanos bound) override;
  RegionDescriptor describe() const override;
  int memory_fd() const override;

  [[nodiscard]] const Context* context() const;
  [[nodiscard]] RegionUses& uses() const;
  // The local key for the byte at `offset`, and how many bytes from there it covers. Thread: the loop that
  // posts, while it holds a use.
  struct LocalKey {
    std::uint32_t lkey = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] LocalKey local_key(std::uint64_t offset) const;
};

}  // namespace slime::transport::verbs
