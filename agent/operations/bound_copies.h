#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "agent/memory/region.h"
#include "agent/peer_agent.h"
#include "base/status.h"
#include "transport/memory.h"

namespace slime::agent {

class Session;

inline transport::Rights rights_for(Transfer transfer) {
  return transfer == Transfer::kRead ? transport::Rights::kRemoteRead : transport::Rights::kRemoteWrite;
}

// The blocks of a one-sided operation, or of many posts of one list, with the regions that they name. Keeps
// the registrations. Thread: the loop; before that the one that makes it. What is const may be asked by any.
class BoundCopies {
 public:
  // `distinct`: a region that is named again is the same one, wherever in the list. Else each run of blocks
  // may have it once more, which is quicker to make.
  BoundCopies(std::span<const slime::Copy> copies, bool distinct);
  BoundCopies(const BoundCopies&) = delete;
  BoundCopies& operator=(const BoundCopies&) = delete;

  // Names the first block whose local side is wrong: kInvalidArgument. All name a region.
  [[nodiscard]] static Status check_locals(std::span<const slime::Copy> copies);
  // Names the first block whose remote side is wrong: kInvalidArgument, kPermissionDenied.
  [[nodiscard]] Status check_remotes(transport::Rights need) const;
  // Whether the regions can be used on this connection; takes time for each region, not for each block.
  [[nodiscard]] Status check_usable(const Session& session) const;
  // The blocks, with registrations of this device. `shared`: what this returned before stays valid.
  std::span<const transport::Copy> on(std::size_t device, bool shared);

  // The same blocks with other remote regions, as many as remotes() are.
  [[nodiscard]] std::shared_ptr<BoundCopies> with(std::span<const RemoteRegion> remotes) const;
  [[nodiscard]] const std::deque<RemoteRegion>& remotes() const { return remotes_; }
  [[nodiscard]] std::size_t size() const { return copies_.size(); }
  [[nodiscard]] std::uint64_t length_bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t length_of(std::size_t block) const { return copies_[block].length_bytes; }

 private:
  BoundCopies() = default;

  std::deque<RemoteRegion> remotes_;  // addresses stay as it grows
  std::vector<RegionState> locals_;
  std::uint64_t bytes_ = 0;
  std::vector<transport::Copy> copies_;
  std::size_t device_ = 0;                                         // whose registrations copies_ name
  std::map<std::size_t, std::vector<transport::Copy>> on_others_;  // with those of other devices
};

}  // namespace slime::agent
