#include "transport/soft/device.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/fork.h"
#include "base/random.h"
#include "base/str.h"
#include "transport/soft/port.h"
#include "transport/soft/region_key.h"

namespace slime::transport::soft {
namespace {

class PlainPending final : public PendingWire {
 public:
  PlainPending(Loop& loop, std::shared_ptr<MakeWire> make) : loop_(loop), make_(std::move(make)) {}
  [[nodiscard]] ByteVector parameters() const override { return {}; }
  Result<std::unique_ptr<Wire>> finish(Bytes peer_parameters, UniqueFd socket,
                                       const Introduction& who) override {
    if (!peer_parameters.empty())
      return Status(Code::kCorrupt, "the peer's engine parameters have a wrong size");
    return (*make_)(loop_, std::move(socket), who);
  }

 private:
  Loop& loop_;
  const std::shared_ptr<MakeWire> make_;
};

// Random numbers for keys of regions. Asks the kernel for many at a time: one system call for each
// takes longer than the rest of a registration. A number is used once, in one process.
class KeyStock {
 public:
  std::uint64_t take() {
    const MutexLock lock(mutex_);
    if (left_ == 0) {
      random_bytes(std::as_writable_bytes(std::span(numbers_)));
      left_ = numbers_.size();
    }
    return std::exchange(numbers_[--left_], 0);
  }

 private:
  Mutex mutex_;
  std::array<std::uint64_t, 64> numbers_ SLIME_GUARDED_BY(mutex_){};
  std::size_t left_ SLIME_GUARDED_BY(mutex_) = 0;
};

std::uint64_t fresh_random() {
  static constinit PerProcess<KeyStock> stock;
  return stock.get().take();
}

}  // namespace

WireFactory plain_wires(Loop& loop, MakeWire make) {
  auto shared = std::make_shared<MakeWire>(std::move(make));
  return [&loop, shared]() -> Result<std::unique_ptr<PendingWire>> {
    return std::unique_ptr<PendingWire>(std::make_unique<PlainPending>(loop, shared));
  };
}

void DeviceState::add_port(const std::shared_ptr<PortState>& port) {
  const MutexLock lock(mutex_);
  std::erase_if(ports_, [](const std::weak_ptr<PortState>& other) { return other.expired(); });
  ports_.push_back(port);
}

std::vector<std::shared_ptr<PortState>> DeviceState::ports() {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<PortState>> out;
  for (const std::weak_ptr<PortState>& port : ports_) {
    if (auto alive = port.lock()) out.push_back(std::move(alive));
  }
  return out;
}

// ----------------------------------------------------------------------------------------- regions

SoftRegion::SoftRegion(std::shared_ptr<DeviceState> device, std::shared_ptr<RegionRecord> registration,
                       Handle id, OwnedMemory owned)
    : device_(std::move(device)), record_(std::move(registration)), id_(id), owned_(std::move(owned)) {
  this->device = device_.get();
  uses = &record_->uses;
  data = record_->data;
  length_bytes = record_->length_bytes;
  rights = record_->rights;
}

SoftRegion::~SoftRegion() { close(limits::kCloseBound).ignore(); }

RegionDescriptor SoftRegion::describe() const {
  RegionDescriptor out;
  out.id = id_;
  out.length_bytes = length_bytes;
  out.rights = rights;
  out.key = pack_key(record_->key);
  return out;
}

Status SoftRegion::close(Nanos bound) {
  if (closed_) return {};
  closed_ = true;
  device_->regions.remove(id_);
  record_->revoke();
  const std::vector<std::shared_ptr<PortState>> ports = device_->ports();
  std::vector<std::shared_ptr<Loop>> loops;
  for (const std::shared_ptr<PortState>& port : ports) loops.push_back(port->loop());
  const bool on_a_loop =
      std::any_of(loops.begin(), loops.end(), [](const auto& loop) { return loop && loop->drives(); });
  const auto wait = [&](Nanos span) {
    return wait_unused(record_->uses, loops, deadline_after(steady_clock().now(), span));
  };
  const TimePoint by = deadline_after(steady_clock().now(), bound);
  const bool clean = record_->uses.unused() || (!on_a_loop && wait(bound));
  // After cut(), no wire reads or writes the memory, even if operations on it are still posted.
  record_->cut();
  record_->wait_unpinned();
  const TimePoint turn = deadline_after(steady_clock().now(), limits::kLoanTurn);
  const bool returned = take_back(on_a_loop ? turn : std::max(by, turn));
  if (clean && returned) return {};
  if (clean)
    return Status(
        Code::kDeadlineExceeded,
        str("a region of ", length_bytes,
            " bytes was closed while a peer that does not run was copying; it has pages of its own now"));
  for (const std::shared_ptr<PortState>& port : ports) port->reset_users(record_);
  if (!on_a_loop) wait(limits::kCloseBound);
  return Status(Code::kDeadlineExceeded,
                str("a region of ", length_bytes,
                    " bytes was closed while operations used it; their endpoints were reset"));
}

// Waits until no peer is inside a copy of this region, which mostly takes microseconds, and returns
// true. After `by`, gives the memory other pages and returns false: a peer that was stopped inside
// a copy may go on at any time, and then reaches only the old pages. If there are no pages for
// that, or the caller owns the memory, goes on waiting.
bool SoftRegion::take_back(TimePoint by) {
  if (record_->wait_returned(by)) return true;
  while (!owned_ || !owned_.part().ok()) {
    if (record_->wait_returned(deadline_after(steady_clock().now(), limits::kLoopWaitTurn))) return true;
  }
  record_->let_go();
  return false;
}

// ------------------------------------------------------------------------------------------ device

Result<DeviceRegion> SoftDevice::register_memory(void* data, std::size_t bytes, Rights rights,
                                                 MemoryKind kind, Use use) {
  if (kind != MemoryKind::kHost) return Status(Code::kUnimplemented, "this provider moves host memory only");
  SLIME_TRY(check_range(data, bytes));
  return add(static_cast<std::byte*>(data), bytes, rights, {}, use);
}

Result<DeviceRegion> SoftDevice::allocate(std::size_t bytes, Rights rights, MemoryKind kind, Pages pages) {
  if (kind != MemoryKind::kHost)
    return Status(Code::kUnimplemented, "this provider allocates host memory only");
  Result<OwnedMemory> memory = OwnedMemory::create(bytes, pages);
  if (!memory) return std::move(memory).error();
  std::byte* address = memory->data();
  return add(address, bytes, rights, std::move(*memory), Use::kLasting);
}

Result<DeviceRegion> SoftDevice::add(std::byte* data, std::size_t bytes, Rights rights, OwnedMemory owned,
                                     Use use) {
  const KeyClass kind = owned ? KeyClass::kMapped : use == Use::kOnce ? KeyClass::kOnce : KeyClass::kRead;
  const std::uint64_t key = make_key(fresh_random(), kind);
  auto record = std::make_shared<RegionRecord>(data, bytes, rights, key, owned.fd());
  Result<Handle> id = state_->regions.add(record);
  if (!id) return std::move(id).error();
  return DeviceRegion(std::make_unique<SoftRegion>(state_, std::move(record), *id, std::move(owned)));
}

Result<std::unique_ptr<Port>> SoftDevice::open_port(Loop& loop, PortOptions options) {
  SLIME_TRY(options.validate());
  Result<WireFactory> factory = loop.run([&] {
    const MutexLock lock(mutex_);
    return make_factory_(loop, options);
  });
  if (!factory) return std::move(factory).error();
  auto state = std::make_shared<PortState>(loop.shared_from_this(), state_, options);
  state_->add_port(state);
  return std::unique_ptr<Port>(std::make_unique<SoftPort>(std::move(state), std::move(*factory)));
}

}  // namespace slime::transport::soft
