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

// Returns whether the port or its GIDs may have changed when this event came.
bool changes_port(ibv_event_type type) {
  constexpr std::array kEvents{IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,          IBV_EVENT_LID_CHANGE,
                               IBV_EVENT_PKEY_CHANGE, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE};
  return std::find(kEvents.begin(), kEvents.end(), type) != kEvents.end();
}

}  // namespace

// ------------------------------------------------------------------------------------------- state

DeviceState::DeviceState(std::shared_ptr<Context> opened, const DmabufExporter& dmabuf_exporter)
    : exporter(dmabuf_exporter),
      relaxed_ordering_((opened->optional_access & IBV_ACCESS_RELAXED_ORDERING) != 0),
      context_(std::move(opened)) {}

DeviceState::~DeviceState() = default;

std::shared_ptr<Context> DeviceState::context() const {
  const MutexLock lock(mutex_);
  return context_;
}

void DeviceState::add_users(const std::shared_ptr<RegionUsers>& users) {
  const MutexLock lock(mutex_);
  std::erase_if(users_, [](const std::weak_ptr<RegionUsers>& other) { return other.expired(); });
  users_.push_back(users);
  ++users_in_place_;
}

void DeviceState::remove_users() {
  const MutexLock lock(mutex_);
  --users_in_place_;
}

std::vector<std::shared_ptr<RegionUsers>> DeviceState::users() {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<RegionUsers>> out;
  for (const std::weak_ptr<RegionUsers>& users : users_) {
    if (auto alive = users.lock()) out.push_back(std::move(alive));
  }
  return out;
}

void DeviceState::tell_event(ibv_event_type type, std::uint32_t queue_pair) {
  const std::shared_ptr<Context> now = context();
  if (type == IBV_EVENT_DEVICE_FATAL)
    lose(*now, Status(Code::kUnavailable, str(now->describe(), " reported: ", event_name(type))));
  if (changes_port(type)) {
    const Status probed = now->probe_again();
    if (!probed.ok())
      SLIME_LOG(LogLevel::kWarning, "verbs", now->selection.device, " reported ", event_name(type), ": ",
                probed.text());
  }
  for (const std::shared_ptr<RegionUsers>& user : users()) user->on_device_event(type, queue_pair);
}

Status DeviceState::usable() const {
  const MutexLock lock(mutex_);
  return unusable_.ok() ? lost_ : unusable_;
}

void DeviceState::set_unusable(const Status& reason) {
  log(LogLevel::kError, "verbs", reason.text());
  const MutexLock lock(mutex_);
  if (unusable_.ok()) unusable_ = reason;
}

Result<Handle> DeviceState::new_region_id() {
  const MutexLock lock(mutex_);
  const std::optional<Handle> id = region_ids_.insert(None{});
  if (!id)
    return Status(Code::kResourceExhausted,
                  str("this device has ", limits::kMaxRegions, " regions; close some"));
  return *id;
}

void DeviceState::drop_region_id(Handle id) {
  const MutexLock lock(mutex_);
  region_ids_.take(id);
}

void DeviceState::add_allocation(const std::byte* data, std::uint64_t bytes,
                                 std::shared_ptr<Registration> registration) {
  const MutexLock lock(mutex_);
  allocations_[data] = {bytes, std::move(registration)};
}

void DeviceState::remove_allocation(const std::byte* data) {
  const MutexLock lock(mutex_);
  allocations_.erase(data);
}

std::shared_ptr<Registration> DeviceState::find_allocation(const std::byte* data, std::uint64_t bytes) const {
  const MutexLock lock(mutex_);
  auto found = allocations_.upper_bound(data);
  if (found == allocations_.begin()) return nullptr;
  --found;
  const auto offset = static_cast<std::uint64_t>(data - found->first);
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) return nullptr;
  return found->second.registration;
}

Result<std::uint32_t> DeviceState::useless_key() {
  const MutexLock lock(mutex_);
  if (useless_ == nullptr) {
    Result<OwnedMemory> memory = OwnedMemory::create(kUselessBytes);
    if (!memory) return std::move(memory).error();
    auto registration = Registration::create(*this, context_, memory->data(), kUselessBytes, Rights::kLocal,
                                             MemoryKind::kHost);
    if (!registration) return std::move(registration).error();
    useless_memory_ = std::move(*memory);
    useless_ = std::move(*registration);
  }
  return useless_->remote_key(0);
}

void DeviceState::no_relaxed_ordering() {
  if (relaxed_ordering_.exchange(false))
    SLIME_LOG(LogLevel::kInfo, "verbs", "an adapter",
              " refuses relaxed ordering; regions are registered without it");
}

// ------------------------------------------------------------------------------------- lost, found

void DeviceState::lose(const Context& failed, const Status& reason) {
  const MutexLock lock(mutex_);
  if (&failed != context_.get() || !lost_.ok()) return;
  context_->set_lost();
  lost_ =
      Status(Code::kUnavailable,
             str(reason.text(), ". It makes no connections until it can be opened again, which is tried"));
  log(LogLevel::kError, "verbs", lost_.text());
}

bool DeviceState::add_region(const std::shared_ptr<RegionRecord>& record, const Context& context) {
  const MutexLock lock(mutex_);
  if (context_.get() != &context) return false;
  if (records_.size() >= 2 * records_checked_ + 64) {
    std::erase_if(records_, [](const std::weak_ptr<RegionRecord>& other) { return other.expired(); });
    records_checked_ = records_.size();
  }
  records_.push_back(record);
  return true;
}

Status DeviceState::reopen() {
  const MutexLock one_at_a_time(reopen_mutex_);
  const std::shared_ptr<Context> old = context();
  if (!old->lost()) return {};
  {
    const MutexLock lock(mutex_);
    if (users_in_place_ > 0) return Status(Code::kUnavailable, "connections over what was lost are ending");
  }
  auto opened = Context::open(old->functions, old->options);
  if (!opened) return std::move(opened).error();
  std::vector<std::shared_ptr<RegionRecord>> records;
  std::shared_ptr<Registration> old_useless;  // ended after the lock
  OwnedMemory old_useless_memory;
  std::map<const std::byte*, Allocation> old_allocations;
  {
    const MutexLock lock(mutex_);
    context_ = *opened;
    old_useless_memory = std::move(useless_memory_);
    old_useless = std::exchange(useless_, nullptr);
    old_allocations = std::exchange(allocations_, {});
    for (const std::weak_ptr<RegionRecord>& record : records_) {
      if (auto alive = record.lock()) records.push_back(std::move(alive));
    }
  }
  relaxed_ordering_ = ((*opened)->optional_access & IBV_ACCESS_RELAXED_ORDERING) != 0;
  old_useless.reset();
  // Registers whole allocations first: regions inside of an allocation share its registration.
  for (const bool shares : {false, true}) {
    for (const std::shared_ptr<RegionRecord>& record : records) {
      if (record->shares == shares) record->register_again(*this, *opened);
    }
  }
  return {};
}

void DeviceState::found() {
  const MutexLock lock(mutex_);
  if (lost_.ok() || context_->lost()) return;
  lost_ = Status();
  SLIME_LOG(LogLevel::kWarning, "verbs", context_->selection.device, " was opened again");
}

// ------------------------------------------------------------------------------------------ device

Result<DeviceRegion> VerbsDevice::register_memory(void* data, std::size_t bytes, Rights rights,
                                                  MemoryKind kind, Use /*use*/) {
  SLIME_TRY(check_range(data, bytes));
  auto* const begin = static_cast<std::byte*>(data);
  if (kind == MemoryKind::kHost && rights == Rights::kLocal) {
    // Only regions without a key for peers share the allocation's registration. A shared key would
    // give peers the whole allocation, and would stay valid after the region was closed.
    if (state_->find_allocation(begin, bytes) != nullptr) {
      auto region = VerbsRegion::share(state_, begin, bytes);
      if (!region) return std::move(region).error();
      return DeviceRegion(std::move(*region));
    }
  }
  auto region = VerbsRegion::create(state_, begin, bytes, rights, kind, {});
  if (!region) return std::move(region).error();
  return DeviceRegion(std::move(*region));
}

Result<DeviceRegion> VerbsDevice::allocate(std::size_t bytes, Rights rights, MemoryKind kind, Pages pages) {
  if (kind != MemoryKind::kHost)
    return Status(Code::kUnimplemented,
                  "this provider allocates host memory only; CUDA memory of yours can be registered");
  Result<OwnedMemory> memory = OwnedMemory::create(bytes, pages);
  if (!memory) return std::move(memory).error();
  std::byte* const data = memory->data();
  auto region = VerbsRegion::create(state_, data, bytes, rights, kind, std::move(*memory));
  if (!region) return std::move(region).error();
  return DeviceRegion(std::move(*region));
}

Result<std::unique_ptr<Port>> VerbsDevice::open_port(Loop& loop, PortOptions options) {
  SLIME_TRY(state_->usable());
  return open_verbs_port(state_, loop, options);
}

ByteVector VerbsDevice::hint() const {
  const std::shared_ptr<Context> context = state_->context();
  const ibv_port_attr port = context->port_attributes();
  const GidInfo gid = context->gid();
  Hint out;
  out.active = port.state == IBV_PORT_ACTIVE && state_->usable().ok() ? 1 : 0;
  out.link_layer = port.link_layer;
  out.gid_type = static_cast<std::uint8_t>(gid.type);
  out.gid = gid.gid;
  return out.encode();
}

std::vector<DeviceCounter> VerbsDevice::counters() const {
  const std::shared_ptr<Context> context = state_->context();
  const Selection& at = context->selection;
  return read_device_counters(at.device, at.port);
}

}  // namespace slime::transport::verbs
