#include "transport/verbs/regions.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "base/str.h"
#include "transport/loop.h"

namespace slime::transport::verbs {

// Waits for the users of a device, or resets their endpoints, while a region is being closed.
struct VerbsRegion::Closing {
  std::vector<std::shared_ptr<RegionUsers>> users;
  std::vector<std::shared_ptr<Loop>> loops;
  bool on_a_loop = false;  // the caller cannot wait

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

// ----------------------------------------------------------------------------------------- records

Status RegionRecord::register_with(DeviceState& device, const std::shared_ptr<Context>& context) {
  if (shares) {
    registration = device.find_allocation(data, bytes);
    if (registration == nullptr) return Status(Code::kUnavailable, "the allocation is not registered");
    first = static_cast<std::uint64_t>(data - registration->data());
    const Result<std::uint32_t> key = device.useless_key();
    if (!key) return key.error();
    useless_key = *key;
    return {};
  }
  auto made = Registration::create(device, context, data, bytes, rights, kind);
  if (!made) return std::move(made).error();
  registration = std::move(*made);
  if (allocates) device.add_allocation(data, bytes, registration);
  return {};
}

void RegionRecord::register_again(DeviceState& device, const std::shared_ptr<Context>& context) {
  const MutexLock lock(mutex);
  if (closed) return;
  usable.store(false, std::memory_order_release);
  registration.reset();
  missing = register_with(device, context);
  usable.store(missing.ok(), std::memory_order_release);
  if (missing.ok()) return;
  registration.reset();
  SLIME_LOG(LogLevel::kWarning, "verbs", "a region of ", bytes, " bytes is not registered with ",
            context->selection.device, ", which was opened again: ", missing.text());
}

// ----------------------------------------------------------------------------------------- regions

Result<std::unique_ptr<VerbsRegion>> VerbsRegion::create(std::shared_ptr<DeviceState> device, std::byte* data,
                                                         std::uint64_t bytes, Rights rights, MemoryKind kind,
                                                         OwnedMemory owned) {
  auto record = std::make_shared<RegionRecord>(data, bytes, rights, kind, false);
  record->allocates = static_cast<bool>(owned);
  return make(std::move(device), std::move(record), std::move(owned));
}

Result<std::unique_ptr<VerbsRegion>> VerbsRegion::share(std::shared_ptr<DeviceState> device, std::byte* data,
                                                        std::uint64_t bytes) {
  auto record = std::make_shared<RegionRecord>(data, bytes, Rights::kLocal, MemoryKind::kHost, true);
  return make(std::move(device), std::move(record), {});
}

Result<std::unique_ptr<VerbsRegion>> VerbsRegion::make(std::shared_ptr<DeviceState> device,
                                                       std::shared_ptr<RegionRecord> record,
                                                       OwnedMemory owned) {
  std::shared_ptr<Context> context;
  do {
    context = device->context();
    record->registration.reset();
    record->missing = record->register_with(*device, context);
    // Set before the device has the record, which it may register again from then on.
    record->usable.store(record->missing.ok(), std::memory_order_release);
    if (record->missing.ok()) continue;
    if (!context->gone()) return record->missing;
    record->registration.reset();
    record->missing = std::move(record->missing)
                          .with_context(str(context->selection.device,
                                            " is lost, and this region is "
                                            "registered when it is opened again"));
  } while (!device->add_region(record, *context));
  Result<Handle> id = device->new_region_id();
  if (!id) {
    if (record->allocates) device->remove_allocation(record->data);
    return std::move(id).error();
  }
  std::unique_ptr<VerbsRegion> out(
      new VerbsRegion(std::move(device), std::move(record), *id, std::move(owned)));
  return out;
}

VerbsRegion::VerbsRegion(std::shared_ptr<DeviceState> device, std::shared_ptr<RegionRecord> record, Handle id,
                         OwnedMemory owned)
    : device_(std::move(device)), id_(id), owned_(std::move(owned)), record_(std::move(record)) {
  this->device = device_.get();
  uses = &uses_;
  data = record_->data;
  length_bytes = record_->bytes;
  rights = record_->rights;
  kind = record_->kind;
}

VerbsRegion::~VerbsRegion() { close(limits::kCloseBound).ignore(); }

Status VerbsRegion::registered() const {
  if (record_->usable.load(std::memory_order_acquire)) return {};
  const MutexLock lock(record_->mutex);
  return record_->missing;
}

// Describes the region for peers. If the region is not registered now, the key gives access to
// nothing.
RegionDescriptor VerbsRegion::describe() const {
  const MutexLock lock(record_->mutex);
  const Registration* const registration = record_->registration.get();
  RegionDescriptor out;
  out.id = id_;
  out.length_bytes = length_bytes;
  out.rights = rights;
  const std::size_t parts = record_->shares || registration == nullptr ? 1 : registration->parts();
  std::array<std::uint32_t, kMaxParts> rkeys{};
  if (record_->shares)
    rkeys[0] = record_->useless_key;
  else if (registration != nullptr)
    for (std::uint8_t i = 0; i < parts; ++i) rkeys[i] = registration->remote_key(i);
  out.key = pack_keys({rkeys.data(), parts}, reinterpret_cast<std::uintptr_t>(data));
  return out;
}

Status VerbsRegion::close(Nanos bound) {
  if (closed_) return outcome_;
  closed_ = true;
  {
    const MutexLock lock(record_->mutex);
    record_->closed = true;
    ending_ = record_->registration;
  }
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
  // A shared registration is kept for the other regions, unless operations of this region may still
  // use it.
  const bool none = ending_ == nullptr || (record_->shares && ended);
  const int error = none ? 0 : end_registration(closing, all_reset);
  if (error != 0) {
    outcome_ = give_up(error);
  } else if (all_reset) {
    outcome_ = Status(Code::kDeadlineExceeded, str("a region of ", length_bytes,
                                                   " bytes was closed while a peer's operation held it; "
                                                   "all connections of ",
                                                   device_->context()->selection.device, " were reset"));
  } else if (!clean) {
    outcome_ = Status(Code::kDeadlineExceeded,
                      str("a region of ", length_bytes,
                          " bytes was closed while operations used it; their endpoints were reset"));
  }
  return outcome_;
}

// Ends the registration, and tries again for a while if the driver refuses. Returns 0, or the last
// errno value. Some drivers (SoftRoCE) refuse while a peer's write is in progress; the reset of all
// connections ends the write.
int VerbsRegion::end_registration(const Closing& closing, bool& all_reset) {
  int error = ending_->deregister();
  if (error == 0) return 0;
  SLIME_LOG(LogLevel::kWarning, "verbs", device_->context()->selection.device,
            " does not end the registration of ", length_bytes, " bytes (",
            from_errno("ibv_dereg_mr", error).text(), "): resetting all its connections");
  all_reset = true;
  closing.reset(nullptr);
  const TimePoint deadline = deadline_after(steady_clock().now(), limits::kDeregisterBound);
  while (error != 0 && steady_clock().now() < deadline) {
    closing.turn();
    error = ending_->deregister();
  }
  return error;
}

// Gives up a registration that could not be ended. The adapter may still write bytes of peers, so
// the memory must not be used for anything else.
Status VerbsRegion::give_up(int error) {
  ending_->abandon();
  const bool ours = static_cast<bool>(owned_);
  owned_.leak();
  Status reason(Code::kInternal, str("the driver of ", device_->context()->selection.device,
                                     " does not end the registration of ", length_bytes, " bytes (",
                                     from_errno("ibv_dereg_mr", error).text(), "). ",
                                     ours ? "They are kept until the process ends"
                                          : "They must not be freed or used again before the process ends",
                                     ", and this device makes no more connections"));
  device_->set_unusable(reason);
  return reason;
}

}  // namespace slime::transport::verbs
