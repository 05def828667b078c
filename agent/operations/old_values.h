#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "agent/memory/region.h"
#include "base/mutex.h"

namespace slime::agent {

// Registered memory of the agent in which the old values of remote atomics land. Grows by chunks,
// up to limits::kAtomics places; a place is used again once its operation has ended. Thread: any.
class OldValues final : public std::enable_shared_from_this<OldValues> {
 public:
  // A place of 8 bytes. Keeps the memory alive. The destructor releases the place. Movable.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept
        : owner_(std::move(other.owner_)), region_(other.region_), place_(other.place_) {}
    Place& operator=(Place&& other) noexcept;
    ~Place() { reset(); }

    [[nodiscard]] MemoryRegion::State& region() const { return *region_; }
    [[nodiscard]] std::uint64_t offset() const;
    // Returns the old value that the operation wrote here. Thread: the one that saw the operation
    // end.
    [[nodiscard]] std::uint64_t value() const;

   private:
    friend class OldValues;
    Place(std::shared_ptr<OldValues> owner, MemoryRegion::State* region, std::uint32_t place)
        : owner_(std::move(owner)), region_(region), place_(place) {}
    void reset();

    std::shared_ptr<OldValues> owner_;
    MemoryRegion::State* region_ = nullptr;
    std::uint32_t place_ = 0;
  };

  // Allocates local memory of this size.
  using Allocate = std::function<Result<MemoryRegion>(std::size_t bytes)>;
  // Returns a free place; allocates a chunk if there is none. Errors: kResourceExhausted if all
  // places are in use; the errors of `allocate`.
  Result<Place> take(const Allocate& allocate);

 private:
  Mutex mutex_;
  std::vector<MemoryRegion> chunks_ SLIME_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::agent
