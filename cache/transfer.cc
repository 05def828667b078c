#include "cache/transfer.h"

#include <algorithm>
#include <utility>

#include "base/copy.h"
#include "cache/limits.h"

namespace slime::cache {

Result<StagingPool::Buffer> StagingPool::acquire(Nanos bound) {
  const MutexLock lock(mutex_);
  if (free_.empty() && made_ < limit_) {
    auto region = agent_.allocate(buffer_bytes_, Rights::kLocal);
    if (!region) return std::move(region).error().with_context("a staging buffer of the cache client");
    buffers_.push_back(std::move(*region));
    return Buffer(*this, made_++);
  }
  if (!freed_.wait_for(mutex_, bound, [this]() SLIME_REQUIRES(mutex_) { return !free_.empty(); }))
    return Status(Code::kResourceExhausted, "all staging buffers of the cache client are in use");
  const std::size_t index = free_.back();
  free_.pop_back();
  return Buffer(*this, index);
}

void StagingPool::give_back(std::size_t index) {
  {
    const MutexLock lock(mutex_);
    free_.push_back(index);
  }
  freed_.notify_one();
}

void Transfer::run(Direction direction, const RemoteRegion& arena, std::span<Haul> hauls) {
  direction_ = direction;
  arena_ = &arena;
  rest_ = hauls;
  while (!rest_.empty() || !in_flight_.empty()) {
    if (rest_.empty() || in_flight_.size() >= limits::kOperationsInFlight) {
      land();
      continue;
    }
    Flight flight = load();
    if (!flight.pieces.empty()) post(std::move(flight));
  }
}

// Returns the next pieces to copy, up to the size of one operation. Returns no pieces if all are
// loaded, if an error occurred, or if an operation must first complete to free a buffer.
Transfer::Flight Transfer::load() {
  Flight flight;
  std::uint64_t room = staging_.buffer_bytes();
  std::uint64_t staged = 0;
  while (!rest_.empty() && room > 0) {
    Haul& haul = rest_.front();
    if (!error_.ok()) {
      if (haul.status.ok()) haul.status = error_;
    } else if (haul.length == 0) {
      haul.checksum = checksum(haul.space, haul.key, haul.version, {});
    }
    if (!haul.status.ok() || at_ == haul.length) {  // this haul is done
      rest_ = rest_.subspan(1);
      extent_ = in_extent_ = at_ = 0;
      continue;
    }
    if (haul.region == nullptr && !flight.buffer && !get_buffer(flight)) break;
    const Extent& extent = haul.extents[extent_];
    Piece piece{&haul, at_, extent.offset + in_extent_, std::min(room, extent.length - in_extent_), {}};
    if (haul.region == nullptr) {
      piece.staged = staged;
      staged += piece.length;
    }
    room -= piece.length;
    at_ += piece.length;
    in_extent_ += piece.length;
    if (in_extent_ == extent.length) {
      ++extent_;
      in_extent_ = 0;
    }
    flight.pieces.push_back(piece);
  }
  return flight;
}

// Gets a staging buffer for `flight`; returns false on failure. Waits for a buffer only while this
// transfer holds none, so that several transfers cannot wait for each other; otherwise completes
// one of its own operations and tries again.
bool Transfer::get_buffer(Flight& flight) {
  for (;;) {
    auto buffer = staging_.acquire(in_flight_.empty() ? timeout_ : Nanos::zero());
    if (buffer) {
      flight.buffer.emplace(std::move(*buffer));
      return true;
    }
    if (in_flight_.empty()) {
      if (error_.ok()) error_ = std::move(buffer).error();
      return false;
    }
    land();
    if (!error_.ok()) return false;
  }
}

void Transfer::post(Flight flight) {
  std::vector<Copy> copies;
  copies.reserve(flight.pieces.size());
  for (const Piece& piece : flight.pieces) {
    const Haul& haul = *piece.haul;
    if (piece.staged) {
      const MemoryRegion& region = flight.buffer->region();
      if (direction_ == Direction::kWrite)
        copy_bytes(region.data() + *piece.staged, haul.source + piece.at, piece.length);
      copies.push_back({region, *piece.staged, *arena_, piece.remote, piece.length});
    } else {
      const std::byte* local = direction_ == Direction::kWrite ? haul.source : haul.target;
      const auto offset = static_cast<std::uint64_t>(local - haul.region->data()) + piece.at;
      copies.push_back({*haul.region, offset, *arena_, piece.remote, piece.length});
    }
  }
  flight.done =
      direction_ == Direction::kWrite ? peer_.write(copies, timeout_) : peer_.read(copies, timeout_);
  in_flight_.push_back(std::move(flight));
  if (direction_ == Direction::kRead) return;
  // Computes the checksum while the bytes are on the wire: only the later seal needs the checksum.
  for (const Piece& piece : in_flight_.back().pieces) add_up(piece, piece.haul->source + piece.at);
}

// Waits for the oldest operation, which ends by its deadline. Its memory must not be used before
// that.
void Transfer::land() {
  Flight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  const Status status = flight.done.wait().status();
  if (!status.ok()) {
    if (error_.ok()) error_ = status;
    for (const Piece& piece : flight.pieces) {
      if (piece.haul->status.ok()) piece.haul->status = status;
    }
    return;
  }
  if (direction_ == Direction::kWrite) return;
  for (const Piece& piece : flight.pieces) {
    std::byte* target = piece.haul->target + piece.at;
    if (piece.staged) copy_bytes(target, flight.buffer->region().data() + *piece.staged, piece.length);
    add_up(piece, target);
  }
}

// Adds the bytes of a piece to the object's checksum. Pieces come in the order of the bytes, one
// object after another.
void Transfer::add_up(const Piece& piece, const std::byte* bytes) {
  Haul& haul = *piece.haul;
  if (piece.at == 0) sum_.start(haul.space, haul.key, haul.version);
  sum_.update(Bytes(bytes, piece.length));
  if (piece.at + piece.length == haul.length) haul.checksum = sum_.value();
}

}  // namespace slime::cache
