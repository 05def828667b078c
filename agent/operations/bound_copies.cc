#include "agent/operations/bound_copies.h"

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
void move_to(std::vector<transport::CopyBlock>& copies, std::size_t from, std::size_t to) {
  for (transport::CopyBlock& copy : copies)
    copy.local += static_cast<std::ptrdiff_t>(to) - static_cast<std::ptrdiff_t>(from);
}

}  // namespace

BoundCopies::BoundCopies(std::span<const slime::Copy> copies, bool distinct) {
  std::unordered_map<const RemoteRegion*, const RemoteRegion*> remotes;
  std::unordered_map<const MemoryRegion::State*, const transport::DeviceRegion*> locals;
  const auto remote_of = [&](const RemoteRegion& remote) {
    if (!distinct) return static_cast<const RemoteRegion*>(&remotes_.emplace_back(remote));
    const auto [it, fresh] = remotes.try_emplace(&remote, nullptr);
    if (fresh) it->second = &remotes_.emplace_back(remote);
    return it->second;
  };
  const auto local_of = [&](const RegionState& local) {
    if (!distinct) return &locals_.emplace_back(local)->registrations.on(0);
    const auto [it, fresh] = locals.try_emplace(local.get(), nullptr);
    if (fresh) it->second = &locals_.emplace_back(local)->registrations.on(0);
    return it->second;
  };
  const RemoteRegion* last_remote = nullptr;
  const MemoryRegion::State* last_local = nullptr;
  transport::CopyBlock bound;
  copies_.reserve(copies.size());
  for (const slime::Copy& copy : copies) {
    if (&copy.remote != last_remote) bound.remote = remote_of(*(last_remote = &copy.remote));
    if (copy.local.state().get() != last_local) {
      last_local = copy.local.state().get();
      bound.local = local_of(copy.local.state());
    }
    bound.local_offset = copy.local_offset;
    bound.remote_offset = copy.remote_offset;
    bound.length_bytes = copy.length_bytes;
    copies_.push_back(bound);
    bytes_ = add(bytes_, copy.length_bytes);
  }
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
  for (const RegionState& local : locals_) {
    if (local->closed()) return Status(Code::kInvalidArgument, "a local region of this operation is closed");
    SLIME_TRY(local->registrations.missing(session.device()));
  }
  for (const RemoteRegion& remote : remotes_) SLIME_TRY(session.check_remote(remote));
  return {};
}

std::span<const transport::CopyBlock> BoundCopies::on(std::size_t device, bool shared) {
  if (device == device_) return copies_;
  if (!shared) {
    move_to(copies_, device_, device);
    device_ = device;
    return copies_;
  }
  std::vector<transport::CopyBlock>& others = on_others_[device];
  if (others.empty()) {
    others = copies_;
    move_to(others, device_, device);
  }
  return others;
}

std::shared_ptr<BoundCopies> BoundCopies::with(std::span<const RemoteRegion> remotes) const {
  std::shared_ptr<BoundCopies> out(new BoundCopies);
  out->locals_ = locals_;
  out->bytes_ = bytes_;
  out->copies_ = copies_;
  out->device_ = device_;
  std::unordered_map<const RemoteRegion*, const RemoteRegion*> moved;
  for (std::size_t i = 0; i < remotes.size(); ++i)
    moved[&remotes_[i]] = &out->remotes_.emplace_back(remotes[i]);
  for (transport::CopyBlock& copy : out->copies_) copy.remote = moved.at(copy.remote);
  return out;
}

}  // namespace slime::agent
