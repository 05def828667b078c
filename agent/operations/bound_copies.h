#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent/memory/region.h"
#include "agent/operations/fixed_list.h"
#include "agent/peer_agent.h"
#include "base/status.h"
#include "transport/memory.h"

namespace slime::agent {

class Session;

inline transport::Rights rights_for(Transfer transfer) {
  return transfer == Transfer::kRead ? transport::Rights::kRemoteRead : transport::Rights::kRemoteWrite;
}

// The blocks of a one-sided operation, or of a list that is posted many times, with the regions
// that they name. Keeps the registrations alive once pin_regions() or count_regions() was called,
// until when the user's handles of the regions do so. Thread: the maker's until the operation is
// submitted, then the loop; const functions: any.
class BoundCopies {
 public:
  // `distinct`: a region that several blocks name is kept once. Otherwise each run of blocks with
  // one region keeps a copy, which is quicker to make.
  BoundCopies(std::span<const slime::Copy> copies, bool distinct);
  // Blocks that follow each other on both sides become one. check() has returned OK for them.
  explicit BoundCopies(const BlockIds& blocks);
  BoundCopies(const BoundCopies&) = delete;
  BoundCopies& operator=(const BoundCopies&) = delete;

  // Checks that each block's local region is open and contains the block. kInvalidArgument names
  // the first wrong block. All blocks must name a region.
  [[nodiscard]] static Status check_locals(std::span<const slime::Copy> copies);
  // Checks the lists, and that both regions contain each block. kInvalidArgument names the first
  // wrong block, and `peer`.
  [[nodiscard]] static Status check(const BlockIds& blocks, std::string_view peer);
  // Checks that each block's remote region contains the block and allows `need`. kInvalidArgument
  // or kPermissionDenied names the first wrong block, and `peer`.
  [[nodiscard]] Status check_remotes(transport::Rights need, std::string_view peer) const;
  // Checks that the regions can be used on this connection. Takes time proportional to the number
  // of regions, not of blocks.
  [[nodiscard]] Status check_usable(const Session& session) const;
  // Returns the blocks with the local registrations of this device. `shared`: true keeps spans
  // valid that earlier calls returned.
  std::span<const transport::CopyBlock> on(std::size_t device, bool shared);

  // Keeps the registrations alive, at no cost where other operations do so already. Thread: the
  // loop, where the list must then be destroyed.
  void pin_regions() {
    for (HeldRegion& local : locals_) local.pin();
  }
  // Keeps the registrations alive. Thread: the maker's.
  void count_regions() {
    for (HeldRegion& local : locals_) local.count();
  }
  // Returns a copy of the list in which `remotes` replaces remotes(), in order. Both must have the
  // same size. Counts the regions of the copy.
  [[nodiscard]] std::shared_ptr<BoundCopies> with(std::span<const RemoteRegion> remotes) const;
  [[nodiscard]] std::span<const RemoteRegion> remotes() const { return {remotes_.data(), remotes_.size()}; }
  [[nodiscard]] std::size_t size() const { return copies_.size(); }
  [[nodiscard]] std::uint64_t length_bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t length_of(std::size_t block) const { return copies_[block].length_bytes; }

 private:
  BoundCopies() {}  // NOLINT(modernize-use-equals-default): the default would clear the lists first
  void bind_one(const slime::Copy& copy);
  template <template <class> class Numbers>
  void bind(std::span<const slime::Copy> copies);

  // Lists of at most this many blocks lie inside the object, without an allocation.
  static constexpr std::size_t kInside = 4;

  FixedList<RemoteRegion, kInside> remotes_;  // copies_ points into it
  FixedList<HeldRegion, kInside> locals_;
  FixedList<transport::CopyBlock, kInside> copies_;
  std::uint64_t bytes_ = 0;
  std::size_t device_ = 0;  // copies_ name the registrations of this device
  // copies_ for other devices, by device
  std::vector<std::vector<transport::CopyBlock>> on_others_;
};

}  // namespace slime::agent
