#include "transport/soft/device.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/random.h"
#include "base/str.h"
#include "transport/soft/port.h"

namespace slime::transport::soft {

void DeviceState::add_port(const std::shared_ptr<PortState>& port) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ports_, [](const std::weak_ptr<PortState>& other) { return other.expired(); });
  ports_.push_back(port);
}

std::vector<std::shared_ptr<PortState>> DeviceState::ports() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<PortState>> out;
  for (const std::weak_ptr<PortState>& port : ports_) {
    if (auto alive = port.lock()) out.push_back(std::move(alive));
  }
  return out;
}

// ------------------------------------------------------------------------------------------------- regions

SoftRegion::SoftRegion(std::shared_ptr<DeviceState> device, std::shared_ptr<RegionRecord> registration,
                       Handle id, Owned owned)
    : device_(std::move(device)), record_(std::move(registration)), id_(id), owned_(std::move(owned)) {
  data = record_->data;
  length_bytes = record_->length_bytes;
  rights = record_->rights;
}

SoftRegion::~SoftRegion() {
  close(limits::kCloseBound).ignore();
  if (owned_.address != nullptr) munmap(owned_.address, owned_.bytes);
}

RegionDescriptor SoftRegion::describe() const {
  RegionDescriptor out;
  out.id = id_;
  out.length_bytes = length_bytes;
  out.rights = rights;
  out.key_count = 1;
  out.keys[0] = record_->key;
  return out;
}

Status SoftRegion::close(Nanos bound) {
  if (closed_) return {};
  closed_ = true;
  device_->regions.remove(id_);
  record_->revoke();
  const std::vector<std::shared_ptr<PortState>> ports = device_->ports();
  const bool on_a_loop =
      std::any_of(ports.begin(), ports.end(), [](const auto& port) { return port->driving(); });
  const bool clean =
      record_->unused() || (!on_a_loop && wait_unused(ports, deadline_after(steady_clock().now(), bound)));
  // From here on no wire touches the memory, whatever is still posted.
  record_->cut();
  record_->wait_unpinned();
  if (clean) return {};
  for (const std::shared_ptr<PortState>& port : ports) port->reset_users(record_);
  if (!on_a_loop) wait_unused(ports, deadline_after(steady_clock().now(), limits::kCloseBound));
  return Status(Code::kDeadlineExceeded,
                str("a region of ", length_bytes,
                    " bytes was closed while operations used it; their endpoints were reset"));
}

// Waits for the operations that use the region. Loops without a thread are driven by whoever waits, so by us.
bool SoftRegion::wait_unused(const std::vector<std::shared_ptr<PortState>>& ports, TimePoint deadline) {
  while (!record_->unused()) {
    const TimePoint now = steady_clock().now();
    if (now >= deadline) return false;
    const TimePoint turn = std::min(deadline, deadline_after(now, limits::kLoopWaitTurn));
    bool driven = false;
    bool may_change = false;
    for (const std::shared_ptr<PortState>& port : ports) {
      const std::shared_ptr<Loop> loop = port->loop();
      if (loop == nullptr) continue;
      if (loop->has_thread()) {
        may_change = true;
        continue;
      }
      driven = true;
      if (loop->manual_clock()) {
        // Its time stands still while we wait: what is not due now never will be.
        while (!record_->unused() && loop->poll(Nanos::zero())) {
        }
      } else {
        may_change = true;
        loop->wait_until([this] { return record_->unused(); }, turn);
      }
    }
    if (!may_change) return record_->unused();
    if (!driven) record_->wait_unused(turn);
  }
  return true;
}

// -------------------------------------------------------------------------------------------------- device

Result<MemoryRegion> SoftDevice::register_memory(void* data, std::size_t bytes, Rights rights,
                                                 MemoryKind kind) {
  if (kind != MemoryKind::kHost) return Status(Code::kUnimplemented, "this provider moves host memory only");
  if (data == nullptr || bytes == 0)
    return Status(Code::kInvalidArgument, "a region needs a non-null address and at least one byte");
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  if (bytes > std::numeric_limits<std::uintptr_t>::max() - begin)
    return Status(Code::kInvalidArgument, str("a region of ", bytes, " bytes ends beyond the address space"));
  return add(static_cast<std::byte*>(data), bytes, rights, {});
}

Result<MemoryRegion> SoftDevice::allocate(std::size_t bytes, Rights rights, MemoryKind kind) {
  if (kind != MemoryKind::kHost)
    return Status(Code::kUnimplemented, "this provider allocates host memory only");
  if (bytes == 0 || bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max()))
    return Status(Code::kInvalidArgument, str("cannot allocate ", bytes, " bytes"));
  SoftRegion::Owned owned;
  owned.fd = UniqueFd(memfd_create("slime", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!owned.fd.valid()) return from_errno("memfd_create", errno);
  if (ftruncate(owned.fd.get(), static_cast<off_t>(bytes)) != 0)
    return from_errno(str("ftruncate of a memfd to ", bytes, " bytes"), errno);
  if (fcntl(owned.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return from_errno("sealing a memfd", errno);
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, owned.fd.get(), 0);
  if (address == MAP_FAILED) return from_errno(str("mmap of ", bytes, " bytes"), errno);
  owned.address = address;
  owned.bytes = bytes;
  return add(static_cast<std::byte*>(address), bytes, rights, std::move(owned));
}

Result<MemoryRegion> SoftDevice::add(std::byte* data, std::size_t bytes, Rights rights,
                                     SoftRegion::Owned owned) {
  std::uint64_t key = 0;
  random_bytes(std::as_writable_bytes(std::span(&key, 1)));
  auto record = std::make_shared<RegionRecord>(data, bytes, rights, key);
  Result<Handle> id = state_->regions.add(record);
  if (!id) {
    if (owned.address != nullptr) munmap(owned.address, owned.bytes);
    return std::move(id).error();
  }
  return MemoryRegion(std::make_unique<SoftRegion>(state_, std::move(record), *id, std::move(owned)));
}

Result<std::unique_ptr<Port>> SoftDevice::open_port(Loop& loop, PortOptions options) {
  SLIME_TRY(options.validate());
  WireFactory factory;
  {
    const std::lock_guard lock(mutex_);
    factory = make_factory_();
  }
  auto state = std::make_shared<PortState>(loop.shared_from_this(), state_, options);
  state_->add_port(state);
  return std::unique_ptr<Port>(std::make_unique<SoftPort>(std::move(state), std::move(factory)));
}

}  // namespace slime::transport::soft
