#include "agent/operations/old_values.h"

#include <cstring>

#include "agent/limits.h"
#include "base/str.h"

namespace slime::agent {
namespace {

constexpr std::size_t kChunkPlaces = limits::kOldValuesChunk / sizeof(std::uint64_t);

}  // namespace

OldValues::Place& OldValues::Place::operator=(Place&& other) noexcept {
  if (this != &other) {
    reset();
    owner_ = std::move(other.owner_);
    region_ = other.region_;
    place_ = other.place_;
  }
  return *this;
}

std::uint64_t OldValues::Place::offset() const { return place_ % kChunkPlaces * sizeof(std::uint64_t); }

std::uint64_t OldValues::Place::value() const {
  std::uint64_t out = 0;
  std::memcpy(&out, region_->registrations.data() + offset(), sizeof out);
  return out;
}

void OldValues::Place::reset() {
  if (!owner_) return;
  const std::shared_ptr<OldValues> owner = std::move(owner_);
  const MutexLock lock(owner->mutex_);
  owner->free_.push_back(place_);
}

Result<OldValues::Place> OldValues::take(const Allocate& allocate) {
  const MutexLock lock(mutex_);
  if (free_.empty()) {
    const std::size_t places = chunks_.size() * kChunkPlaces;
    if (places >= limits::kAtomics)
      return Status(Code::kResourceExhausted,
                    str(places, " remote atomics of this agent wait or are in flight"));
    Result<MemoryRegion> chunk = allocate(limits::kOldValuesChunk);
    if (!chunk) return std::move(chunk).error();
    chunks_.push_back(std::move(*chunk));
    for (std::size_t i = kChunkPlaces; i > 0; --i)
      free_.push_back(static_cast<std::uint32_t>(places + i - 1));
  }
  const std::uint32_t place = free_.back();
  free_.pop_back();
  return Place(shared_from_this(), chunks_[place / kChunkPlaces].state().get(), place);
}

}  // namespace slime::agent
