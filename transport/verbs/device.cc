#include "transport/verbs/device.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "base/str.h"
#include "transport/verbs/device_counters.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/parameters.h"
#include "transport/verbs/regions.h"

namespace slime::transport::verbs {
namespace {

constexpr std::size_t kUselessBytes = 4096;

// Whether port or GID may be another one now.
bool changes_port(ibv_event_type type) {
  constexpr std::array kEvents{IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,          IBV_EVENT_LID_CHANGE,
                               IBV_EVENT_PKEY_CHANGE, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE};
  return std::find(kEvents.begin(), kEvents.end(), type) != kEvents.end();
}

}  // namespace

// ------------------------------------------------------------------------------------------------- state

DeviceState::DeviceState(std::shared_ptr<Context> opened, const DmabufExporter& dmabuf_exporter)
    : context(std::move(opened)),
      exporter(dmabuf_exporter),
      relaxed_ordering_((context->optional_access & IBV_ACCESS_RELAXED_ORDERING) != 0) {}

DeviceState::~DeviceState() = default;

void DeviceState::add_users(const std::shared_ptr<RegionUsers>& users) {
  const std::lock_guard lock(mutex_);
  std::erase_if(users_, [](const std::weak_ptr<RegionUsers>& other) { return other.expired(); });
  users_.push_back(users);
}

std::vector<std::shared_ptr<RegionUsers>> DeviceState::users() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<RegionUsers>> out;
  for (const std::weak_ptr<RegionUsers>& users : users_) {
    if (auto alive = users.lock()) out.push_back(std::move(alive));
  }
  return out;
}

void DeviceState::tell_event(ibv_event_type type, std::uint32_t queue_pair) {
  if (changes_port(type)) {
    const Status probed = context->probe_again();
    if (!probed.ok())
      SLIME_LOG(LogLevel::kWarning, "verbs", context->selection.device, " reported ", event_name(type), ": ",
                probed.text());
  }
  for (const std::shared_ptr<RegionUsers>& user : users()) user->on_device_event(type, queue_pair);
}

Status DeviceState::usable() const {
  const std::lock_guard lock(mutex_);
  return unusable_;
}

void DeviceState::set_unusable(const Status& reason) {
  log(LogLevel::kError, "verbs", reason.text());
  const std::lock_guard lock(mutex_);
  if (unusable_.ok()) unusable_ = reason;
}

Result<Handle> DeviceState::new_region_id() {
  const std::lock_guard lock(mutex_);
  const std::optional<Handle> id = region_ids_.insert(None{});
  if (!id)
    return Status(Code::kResourceExhausted,
                  str("this device has ", limits::kMaxRegions, " regions; close some"));
  return *id;
}

void DeviceState::drop_region_id(Handle id) {
  const std::lock_guard lock(mutex_);
  region_ids_.take(id);
}

void DeviceState::add_allocation(const std::byte* data, std::uint64_t bytes,
                                 std::shared_ptr<Registration> registration) {
  const std::lock_guard lock(mutex_);
  allocations_[data] = {bytes, std::move(registration)};
}

void DeviceState::remove_allocation(const std::byte* data) {
  const std::lock_guard lock(mutex_);
  allocations_.erase(data);
}

std::shared_ptr<Registration> DeviceState::find_allocation(const std::byte* data, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto found = allocations_.upper_bound(data);
  if (found == allocations_.begin()) return nullptr;
  --found;
  const auto offset = static_cast<std::uint64_t>(data - found->first);
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) return nullptr;
  return found->second.registration;
}

Result<std::uint32_t> DeviceState::useless_key() {
  const std::lock_guard lock(mutex_);
  if (useless_ == nullptr) {
    Result<OwnedMemory> memory = OwnedMemory::create(kUselessBytes);
    if (!memory) return std::move(memory).error();
    auto registration =
        Registration::create(*this, memory->data(), kUselessBytes, Rights::kLocal, MemoryKind::kHost);
    if (!registration) return std::move(registration).error();
    useless_memory_ = std::move(*memory);
    useless_ = std::move(*registration);
  }
  return useless_->remote_key(0);
}

void DeviceState::no_relaxed_ordering() {
  if (relaxed_ordering_.exchange(false))
    SLIME_LOG(LogLevel::kInfo, "verbs", context->selection.device,
              " refuses relaxed ordering; regions are registered without it");
}

// ------------------------------------------------------------------------------------------------ device

Result<MemoryRegion> VerbsDevice::register_memory(void* data, std::size_t bytes, Rights rights,
                                                  MemoryKind kind, Use /*use*/) {
  SLIME_TRY(check_range(data, bytes));
  auto* const begin = static_cast<std::byte*>(data);
  if (kind == MemoryKind::kHost && rights == Rights::kLocal) {
    // A key for peers is never shared: it would reach the whole allocation, and outlive the region.
    if (auto whole = state_->find_allocation(begin, bytes)) {
      auto region = VerbsRegion::share(state_, begin, bytes, std::move(whole));
      if (!region) return std::move(region).error();
      return MemoryRegion(std::move(*region));
    }
  }
  auto region = VerbsRegion::create(state_, begin, bytes, rights, kind, {});
  if (!region) return std::move(region).error();
  return MemoryRegion(std::move(*region));
}

Result<MemoryRegion> VerbsDevice::allocate(std::size_t bytes, Rights rights, MemoryKind kind, Pages pages) {
  if (kind != MemoryKind::kHost)
    return Status(Code::kUnimplemented,
                  "this provider allocates host memory only; CUDA memory of yours can be registered");
  Result<OwnedMemory> memory = OwnedMemory::create(bytes, pages);
  if (!memory) return std::move(memory).error();
  std::byte* const data = memory->data();
  auto region = VerbsRegion::create(state_, data, bytes, rights, kind, std::move(*memory));
  if (!region) return std::move(region).error();
  return MemoryRegion(std::move(*region));
}

Result<std::unique_ptr<Port>> VerbsDevice::open_port(Loop& loop, PortOptions options) {
  SLIME_TRY(state_->usable());
  return open_verbs_port(state_, loop, options);
}

ByteVector VerbsDevice::hint() const {
  const ibv_port_attr port = state_->context->port_attributes();
  const GidInfo gid = state_->context->gid();
  Hint out;
  out.active = port.state == IBV_PORT_ACTIVE && state_->usable().ok() ? 1 : 0;
  out.link_layer = port.link_layer;
  out.gid_type = static_cast<std::uint8_t>(gid.type);
  out.gid = gid.gid;
  return out.encode();
}

std::vector<DeviceCounter> VerbsDevice::counters() const {
  const Selection& at = state_->context->selection;
  return read_device_counters(at.device, at.port);
}

}  // namespace slime::transport::verbs
