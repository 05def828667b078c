#include "transport/verbs/regions.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "base/str.h"
#include "transport/loop.h"

namespace slime::transport::verbs {

// Who may use the region that is being closed.
struct VerbsRegion::Closing {
  std::vector<std::shared_ptr<RegionUsers>> users;
  std::vector<std::shared_ptr<Loop>> loops;
  bool on_a_loop = false;  // where nothing can be waited for

  explicit Closing(DeviceState& device) : users(device.users()) {
    for (const std::shared_ptr<RegionUsers>& user : users) {
      if (std::shared_ptr<Loop> loop = user->users_loop()) loops.push_back(std::move(loop));
    }
    on_a_loop = std::any_of(loops.begin(), loops.end(), [](const auto& loop) { return loop->drives(); });
  }
  void reset(const RegionUses* uses) const {
    for (const std::shared_ptr<RegionUsers>& user : users) user->reset_users(uses);
  }
  bool wait(RegionUses& uses, Nanos bound) const {
    return uses.unused() ||
           (!on_a_loop && wait_unused(uses, loops, deadline_after(steady_clock().now(), bound)));
  }
  void turn() const {
    for (const std::shared_ptr<Loop>& loop : loops) {
      if (!on_a_loop && !loop->has_thread()) loop->poll(Nanos::zero());
    }
    std::this_thread::sleep_for(limits::kDeregisterTurn);
  }
};

Result<std::unique_ptr<VerbsRegion>> VerbsRegion::create(std::shared_ptr<DeviceState> device, std::byte* data,
                                                         std::uint64_t bytes, Rights rights, MemoryKind kind,
                                                         OwnedMemory owned) {
  auto registration = Registration::create(*device, data, bytes, rights, kind);
  if (!registration) return std::move(registration).error();
  Result<Handle> id = device->new_region_id();
  if (!id) return std::move(id).error();
  if (owned) device->add_allocation(data, bytes, *registration);
  std::unique_ptr<VerbsRegion> out(
      new VerbsRegion(std::move(device), std::move(*registration), *id, std::move(owned)));
  out->data = data;
  out->length_bytes = bytes;
  out->rights = rights;
  out->kind = kind;
  return out;
}

Result<std::unique_ptr<VerbsRegion>> VerbsRegion::share(std::shared_ptr<DeviceState> device, std::byte* data,
                                                        std::uint64_t bytes,
                                                        std::shared_ptr<Registration> registration) {
  const Result<std::uint32_t> key = device->useless_key();
  if (!key) return key.error();
  Result<Handle> id = device->new_region_id();
  if (!id) return std::move(id).error();
  std::unique_ptr<VerbsRegion> out(new VerbsRegion(std::move(device), std::move(registration), *id, {}));
  out->data = data;
  out->length_bytes = bytes;
  out->first_ = static_cast<std::uint64_t>(data - out->registration_->data());
  out->useless_key_ = *key;
  out->shares_ = true;
  return out;
}

VerbsRegion::VerbsRegion(std::shared_ptr<DeviceState> device, std::shared_ptr<Registration> registration,
                         Handle id, OwnedMemory owned)
    : device_(std::move(device)), id_(id), owned_(std::move(owned)), registration_(std::move(registration)) {
  this->device = device_->context.get();
}

VerbsRegion::~VerbsRegion() { close(limits::kCloseBound).ignore(); }

RegionDescriptor VerbsRegion::describe() const {
  RegionDescriptor out;
  out.id = id_;
  out.length_bytes = length_bytes;
  out.rights = rights;
  out.base = reinterpret_cast<std::uintptr_t>(data);
  out.key_count = shares_ ? 1 : registration_->parts();
  for (std::uint8_t i = 0; i < out.key_count; ++i)
    out.keys[i] = shares_ ? useless_key_ : registration_->remote_key(i);
  return out;
}

Status VerbsRegion::close(Nanos bound) {
  if (closed_) return outcome_;
  closed_ = true;
  if (owned_) device_->remove_allocation(owned_.data());
  device_->drop_region_id(id_);
  uses_.revoke();
  const Closing closing(*device_);
  const bool clean = closing.wait(uses_, bound);
  bool ended = clean;
  if (!clean) {
    closing.reset(&uses_);
    ended = closing.wait(uses_, limits::kCloseBound);
  }
  bool all_reset = false;
  // A shared registration stays for the others, unless work of ours may still go through it.
  const int error = shares_ && ended ? 0 : end_registration(closing, all_reset);
  if (error != 0) {
    outcome_ = give_up(error);
  } else if (all_reset) {
    outcome_ = Status(Code::kDeadlineExceeded, str("a region of ", length_bytes,
                                                   " bytes was closed while a peer's operation held it; "
                                                   "all connections of ",
                                                   device_->context->selection.device, " were reset"));
  } else if (!clean) {
    outcome_ = Status(Code::kDeadlineExceeded,
                      str("a region of ", length_bytes,
                          " bytes was closed while operations used it; their endpoints were reset"));
  }
  return outcome_;
}

// 0, or why the driver refused to the end. Some drivers refuse while a peer's write is in progress, as
// SoftRoCE does: without its queue pair the write ends.
int VerbsRegion::end_registration(const Closing& closing, bool& all_reset) {
  int error = registration_->deregister();
  if (error == 0) return 0;
  SLIME_LOG(LogLevel::kWarning, "verbs", device_->context->selection.device,
            " does not end the registration of ", length_bytes, " bytes (",
            from_errno("ibv_dereg_mr", error).text(), "): resetting all its connections");
  all_reset = true;
  closing.reset(nullptr);
  const TimePoint deadline = deadline_after(steady_clock().now(), limits::kDeregisterBound);
  while (error != 0 && steady_clock().now() < deadline) {
    closing.turn();
    error = registration_->deregister();
  }
  return error;
}

// The adapter may still move bytes of peers: the memory must never serve anything else.
Status VerbsRegion::give_up(int error) {
  registration_->abandon();
  const bool ours = static_cast<bool>(owned_);
  owned_.leak();
  Status reason(Code::kInternal, str("the driver of ", device_->context->selection.device,
                                     " does not end the registration of ", length_bytes, " bytes (",
                                     from_errno("ibv_dereg_mr", error).text(), "). ",
                                     ours ? "They are kept until the process ends"
                                          : "They must not be freed or used again before the process ends",
                                     ", and this device makes no more connections"));
  device_->set_unusable(reason);
  return reason;
}

}  // namespace slime::transport::verbs
