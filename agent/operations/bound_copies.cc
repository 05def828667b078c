#include "agent/operations/bound_copies.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "agent/connecting/session.h"
#include "base/str.h"
#include "transport/copy_checks.h"

namespace slime::agent {
namespace {

// Returns a + b, or the largest number if the sum overflows. Only a list that a later check refuses
// can overflow.
std::uint64_t add(std::uint64_t a, std::uint64_t b) { return a + b < a ? ~std::uint64_t{0} : a + b; }

// Changes the local regions of the blocks from registrations of device `from` to those of device
// `to`: all registrations of a region lie in one array.
void move_to(std::span<transport::CopyBlock> copies, std::size_t from, std::size_t to) {
  for (transport::CopyBlock& copy : copies)
    copy.local += static_cast<std::ptrdiff_t>(to) - static_cast<std::ptrdiff_t>(from);
}

// Numbers the regions of a list in order of appearance: each run of blocks with one region has a
// number.
template <class Region>
class Runs {
 public:
  // Returns true if the region has a new number.
  bool add(const Region& region) {
    if (&region == last_) return false;
    last_ = &region;
    ++count_;
    return true;
  }
  [[nodiscard]] std::size_t now() const { return count_ - 1; }  // number of the region added last
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  const Region* last_ = nullptr;
  std::size_t count_ = 0;
};

// Like Runs, but a region that appears again has its first number.
template <class Region>
class Distinct {
 public:
  bool add(const Region& region) {
    if (&region == last_) return false;
    last_ = &region;
    const auto [it, fresh] = known_.try_emplace(&region, known_.size());
    now_ = it->second;
    return fresh;
  }
  [[nodiscard]] std::size_t now() const { return now_; }
  [[nodiscard]] std::size_t count() const { return known_.size(); }

 private:
  const Region* last_ = nullptr;
  std::size_t now_ = 0;
  std::unordered_map<const Region*, std::size_t> known_;
};

}  // namespace

BoundCopies::BoundCopies(std::span<const slime::Copy> copies, bool distinct) {
  if (copies.size() == 1)
    bind_one(copies.front());
  else if (distinct)
    bind<Distinct>(copies);
  else
    bind<Runs>(copies);
}

// Like bind(), for a list of one block.
void BoundCopies::bind_one(const slime::Copy& copy) {
  const HeldRegion& local = locals_.emplace_back(*copy.local.state());
  copies_.emplace_back(transport::CopyBlock{.local = &local->registrations.on(0),
                                            .local_offset = copy.local_offset,
                                            .remote = &remotes_.emplace_back(copy.remote),
                                            .remote_offset = copy.remote_offset,
                                            .length_bytes = copy.length_bytes});
  bytes_ = copy.length_bytes;
}

template <template <class> class Numbers>
void BoundCopies::bind(std::span<const slime::Copy> copies) {
  if (copies.size() > kInside) {
    Numbers<RemoteRegion> remotes;
    Numbers<MemoryRegion::State> locals;
    for (const slime::Copy& copy : copies) {
      remotes.add(copy.remote);
      locals.add(*copy.local.state());
    }
    remotes_.reserve(remotes.count());
    locals_.reserve(locals.count());
    copies_.reserve(copies.size());
  }
  Numbers<RemoteRegion> remotes;
  Numbers<MemoryRegion::State> locals;
  for (const slime::Copy& copy : copies) {
    if (remotes.add(copy.remote)) remotes_.emplace_back(copy.remote);
    if (locals.add(*copy.local.state())) locals_.emplace_back(*copy.local.state());
    transport::CopyBlock& bound = copies_.emplace_back();
    bound.remote = &remotes_[remotes.now()];
    bound.local = &locals_[locals.now()]->registrations.on(0);
    bound.local_offset = copy.local_offset;
    bound.remote_offset = copy.remote_offset;
    bound.length_bytes = copy.length_bytes;
    bytes_ = add(bytes_, copy.length_bytes);
  }
}

BoundCopies::BoundCopies(const BlockIds& blocks) {
  // Calls next(i) for each block i that does not follow its predecessor on both sides.
  const auto for_each_run = [&blocks](auto&& next) {
    for (std::size_t i = 0; i < blocks.local_ids.size(); ++i) {
      if (i == 0 || blocks.local_ids[i] != blocks.local_ids[i - 1] + 1 ||
          blocks.remote_ids[i] != blocks.remote_ids[i - 1] + 1)
        next(i);
    }
  };
  std::size_t runs = 0;
  for_each_run([&](std::size_t) { ++runs; });
  copies_.reserve(runs);
  remotes_.emplace_back(blocks.remote);
  locals_.emplace_back(*blocks.local.state());
  std::size_t first = 0;  // of the last run
  const auto end_run = [&](std::size_t end) {
    if (!copies_.empty()) copies_.back().length_bytes = (end - first) * blocks.block_bytes;
    first = end;
  };
  for_each_run([&](std::size_t i) {
    end_run(i);
    transport::CopyBlock& bound = copies_.emplace_back();
    bound.remote = remotes_.data();
    bound.local = &locals_.front()->registrations.on(0);
    bound.local_offset = blocks.local_offset + blocks.local_ids[i] * blocks.block_bytes;
    bound.remote_offset = blocks.remote_offset + blocks.remote_ids[i] * blocks.block_bytes;
  });
  end_run(blocks.local_ids.size());
  for (const transport::CopyBlock& copy : copies_) bytes_ = add(bytes_, copy.length_bytes);
}

namespace {

// Returns the first of `ids` whose block is not inside a region of `region_bytes`; the size of the
// list if all blocks are.
std::size_t first_outside(std::span<const std::uint64_t> ids, std::uint64_t offset, std::uint64_t block_bytes,
                          std::uint64_t region_bytes) {
  const std::uint64_t blocks =
      offset > region_bytes || block_bytes == 0 ? 0 : (region_bytes - offset) / block_bytes;
  return static_cast<std::size_t>(
      std::find_if(ids.begin(), ids.end(), [blocks](std::uint64_t id) { return id >= blocks; }) -
      ids.begin());
}

Status outside(std::size_t block, std::uint64_t id, std::uint64_t offset, std::uint64_t block_bytes,
               std::string_view region, std::uint64_t region_bytes, std::string_view of) {
  return Status(Code::kInvalidArgument,
                str("block ", block, ": number ", id, " of ", block_bytes, " bytes from offset ", offset,
                    " is not inside the ", region, " region of ", region_bytes, " bytes", of));
}

}  // namespace

Status BoundCopies::check(const BlockIds& blocks, std::string_view peer) {
  const std::size_t count = blocks.local_ids.size();
  if (count != blocks.remote_ids.size())
    return Status(Code::kInvalidArgument,
                  str(count, " local blocks, and ", blocks.remote_ids.size(), " remote ones"));
  if (count > limits::kBatchBlocks)
    return Status(Code::kInvalidArgument,
                  str("a batch of ", count, " blocks; at most ", limits::kBatchBlocks));
  if (blocks.block_bytes == 0) return Status(Code::kInvalidArgument, "blocks of 0 bytes");
  if (blocks.remote.endpoint_id() == 0) return Status(Code::kInvalidArgument, "no remote region");
  const std::uint64_t local_bytes = blocks.local.length_bytes();
  std::size_t wrong = first_outside(blocks.local_ids, blocks.local_offset, blocks.block_bytes, local_bytes);
  if (wrong < count)
    return outside(wrong, blocks.local_ids[wrong], blocks.local_offset, blocks.block_bytes, "local",
                   local_bytes, "");
  const std::uint64_t remote_bytes = blocks.remote.length_bytes();
  wrong = first_outside(blocks.remote_ids, blocks.remote_offset, blocks.block_bytes, remote_bytes);
  if (wrong < count)
    return outside(wrong, blocks.remote_ids[wrong], blocks.remote_offset, blocks.block_bytes, "remote",
                   remote_bytes, str(" of ", peer));
  return {};
}

Status BoundCopies::check_locals(std::span<const slime::Copy> copies) {
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const slime::Copy& copy = copies[i];
    if (copy.local.state()->closed())
      return Status(Code::kInvalidArgument, str("block ", i, ": the local region is closed"));
    if (!transport::in_bounds(copy.local_offset, copy.length_bytes, copy.local.length_bytes()))
      return Status(Code::kInvalidArgument, str("block ", i, ": ",
                                                transport::not_inside(copy.local_offset, copy.length_bytes,
                                                                      "local", copy.local.length_bytes())));
  }
  return {};
}

Status BoundCopies::check_remotes(transport::Rights need, std::string_view peer) const {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    const transport::CopyBlock& copy = copies_[i];
    const RemoteRegion& remote = *copy.remote;
    if (remote.endpoint_id() == 0)
      return Status(Code::kInvalidArgument, str("block ", i, ": no remote region"));
    if (!transport::in_bounds(copy.remote_offset, copy.length_bytes, remote.length_bytes()))
      return Status(Code::kInvalidArgument, str("block ", i, ": ",
                                                transport::not_inside(copy.remote_offset, copy.length_bytes,
                                                                      "remote", remote.length_bytes()),
                                                " of ", peer));
    if (!transport::allows(remote.rights(), need))
      return Status(
          Code::kPermissionDenied,
          str("block ", i, ": ", peer, " does not allow ",
              need == transport::Rights::kRemoteRead ? "reading" : "writing", " the remote region"));
  }
  return {};
}

Status BoundCopies::check_usable(const Session& session) const {
  const std::size_t device = session.device();
  for (const HeldRegion& local : locals_) {
    if (local->closed()) return Status(Code::kInvalidArgument, "a local region of this operation is closed");
    if (!local->registrations.usable(device)) SLIME_TRY(local->registrations.missing(device));
  }
  for (const RemoteRegion& remote : remotes_) {
    if (!session.knows(remote)) SLIME_TRY(session.check_remote(remote));
  }
  return {};
}

std::span<const transport::CopyBlock> BoundCopies::on(std::size_t device, bool shared) {
  if (device != device_ && !shared) {
    move_to({copies_.data(), copies_.size()}, device_, device);
    device_ = device;
  }
  if (device == device_) return {copies_.data(), copies_.size()};
  if (on_others_.size() <= device) on_others_.resize(device + 1);
  std::vector<transport::CopyBlock>& others = on_others_[device];
  if (others.empty()) {
    others.assign(copies_.begin(), copies_.end());
    move_to(others, device_, device);
  }
  return others;
}

std::shared_ptr<BoundCopies> BoundCopies::with(std::span<const RemoteRegion> remotes) const {
  std::shared_ptr<BoundCopies> out(new BoundCopies);
  out->remotes_.reserve(remotes.size());
  out->locals_.reserve(locals_.size());
  out->copies_.reserve(copies_.size());
  for (const RemoteRegion& remote : remotes) out->remotes_.emplace_back(remote);
  for (const HeldRegion& local : locals_) out->locals_.emplace_back(*local.operator->()).count();
  for (const transport::CopyBlock& copy : copies_) {
    const std::ptrdiff_t number = copy.remote - remotes_.data();
    out->copies_.emplace_back(copy).remote = out->remotes_.data() + number;
  }
  out->bytes_ = bytes_;
  out->device_ = device_;
  return out;
}

}  // namespace slime::agent
