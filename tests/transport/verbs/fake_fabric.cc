#include "tests/transport/verbs/fake_fabric.h"

#include <doctest/doctest.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/check.h"
#include "base/clock.h"
#include "base/reaper.h"
#include "tests/transport/verbs/fake_objects.h"

namespace slime::transport::testing {

namespace fake {
namespace {
std::atomic<Fabric*> current{nullptr};
// Reached only by a test that never releases a held call, also on a busy machine and with a
// sanitizer.
constexpr std::chrono::minutes kHeldBound{1};
}  // namespace

Entered::Entered() : fabric_(current.load()) {
  if (fabric_ != nullptr) lock_ = std::unique_lock(fabric_->mutex);
}

void Entered::pass(Call call) {
  if (fabric_ == nullptr || fabric_->held.count(call) == 0) return;
  ++fabric_->held_calls;
  const bool let_go =
      fabric_->let_go.wait_for(lock_, kHeldBound, [&] { return fabric_->held.count(call) == 0; });
  --fabric_->held_calls;
  if (!let_go) fabric_->misuse("a call was held for a minute, and never let go");
}

void Entered::wait_acknowledged(const std::uint64_t& delivered, const char* call) {
  const bool done =
      fabric_->acknowledged.wait_for(lock_, std::chrono::seconds(2), [&] { return delivered == 0; });
  if (!done) fabric_->misuse(str(call, " would wait for ever: events of it were not acknowledged"));
}

Fabric::Fabric(FakeOptions given) : options(std::move(given)), rng(options.seed) {
  for (const FakeDeviceOptions& wanted : options.devices) {
    Device& device = *keep(devices);
    device.options = wanted;
    device.options.attributes.phys_port_cnt = static_cast<std::uint8_t>(wanted.ports.size());
    device.node_type = IBV_NODE_CA;
    device.transport_type = IBV_TRANSPORT_IB;
    wanted.name.copy(static_cast<char*>(device.name), sizeof(device.name) - 1);
  }
  fill_devices(table);
  fill_memory(table);
  fill_completions(table);
  fill_queue_pairs(table);
  fill_posting(table);
  if (!options.has_iova2) table.reg_mr_iova2 = nullptr;
  if (!options.has_dmabuf) table.reg_dmabuf_mr = nullptr;
  Fabric* none = nullptr;
  SLIME_CHECK(current.compare_exchange_strong(none, this));  // one fabric at a time
  if (options.pump_thread) pump_thread = std::thread([this] { pump(); });
}

Fabric::~Fabric() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  work_arrived.notify_all();
  if (pump_thread.joinable()) pump_thread.join();
  current.store(nullptr);
  for (DmabufMemory& memory : dmabufs) ::munmap(memory.bytes.data(), memory.bytes.size());
}

void Fabric::misuse(std::string text) { misuses.push_back(std::move(text)); }

int Fabric::injected(Call call) {
  for (auto fault = call_faults.begin(); fault != call_faults.end(); ++fault) {
    if ((fault->call != Call::kAny && fault->call != call) || --fault->nth > 0) continue;
    const int error = fault->error;
    call_faults.erase(fault);
    return error;
  }
  return 0;
}

Device* Fabric::find(std::string_view name) {
  for (const auto& device : devices) {
    if (device->options.name == name) return device.get();
  }
  SLIME_CHECK(!"the fake fabric has a device of this name");
  return nullptr;
}

void Fabric::pump() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (!busy()) {
      work_arrived.wait(lock);
    } else if (!step()) {
      // All work waits for a peer, a receive or a link: let time pass, but slowly.
      work_arrived.wait_for(lock, std::chrono::milliseconds(1));
    } else {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

}  // namespace fake

using fake::Device;
using Lock = std::lock_guard<std::mutex>;

ibv_gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = a;
  gid.raw[13] = b;
  gid.raw[14] = c;
  gid.raw[15] = d;
  return gid;
}

ibv_gid ipv6_gid(std::uint64_t prefix, std::uint64_t interface_id) {
  ibv_gid gid{};
  gid.global.subnet_prefix = htobe64(prefix);
  gid.global.interface_id = htobe64(interface_id);
  return gid;
}

ibv_device_attr default_attributes() {
  ibv_device_attr out{};
  std::string_view("fake.1.0").copy(static_cast<char*>(out.fw_ver), sizeof(out.fw_ver) - 1);
  out.max_mr_size = std::uint64_t{1} << 40;
  out.page_size_cap = 0xfffff000;
  out.max_qp = 4096;
  out.max_qp_wr = 16384;
  out.max_sge = 16;
  out.max_sge_rd = 16;
  out.max_cq = 1024;
  out.max_cqe = 1 << 20;
  out.max_mr = 1 << 16;
  out.max_pd = 1024;
  out.max_qp_rd_atom = 16;
  out.max_qp_init_rd_atom = 16;
  out.atomic_cap = IBV_ATOMIC_HCA;
  out.max_srq = 1024;
  out.max_srq_wr = 32768;
  out.max_srq_sge = 16;
  out.max_pkeys = 1;
  return out;
}

FakeOptions FakeOptions::roce(int count) {
  FakeOptions options;
  const unsigned loopback = ::if_nametoindex("lo");
  for (int i = 0; i < count; ++i) {
    const ibv_gid link_local = ipv6_gid(0xfe80000000000000, 0x0200'00ff'fe00'0001 + static_cast<unsigned>(i));
    const ibv_gid address = ipv4_gid(10, 9, 0, static_cast<std::uint8_t>(i + 1));
    FakePortOptions port;
    port.gids = {{link_local, IBV_GID_TYPE_ROCE_V1, loopback},
                 {link_local, IBV_GID_TYPE_ROCE_V2, loopback},
                 {address, IBV_GID_TYPE_ROCE_V1, loopback},
                 {address, IBV_GID_TYPE_ROCE_V2, loopback},
                 {},
                 {}};
    options.devices.push_back(
        {.name = str("fake", i), .ports = {std::move(port)}, .attributes = default_attributes()});
  }
  return options;
}

FakeOptions FakeOptions::infiniband(int count) {
  FakeOptions options;
  for (int i = 0; i < count; ++i) {
    FakePortOptions port;
    port.link_layer = IBV_LINK_LAYER_INFINIBAND;
    port.active_mtu = IBV_MTU_4096;
    port.lid = static_cast<std::uint16_t>(i + 1);
    port.gids = {
        {ipv6_gid(0xfe80000000000000, 0x0002'c903'0000'0001 + static_cast<unsigned>(i)), IBV_GID_TYPE_IB, 0}};
    options.devices.push_back(
        {.name = str("fake", i), .ports = {std::move(port)}, .attributes = default_attributes()});
  }
  return options;
}

FakeFabric::FakeFabric(FakeOptions options) : fabric_(std::make_unique<fake::Fabric>(std::move(options))) {}

void FakeFabric::await_ends() {
  const TimePoint deadline = deadline_after(steady_clock().now(), std::chrono::seconds(20));
  while (reaping() > 0 && steady_clock().now() < deadline) std::this_thread::yield();
}

FakeFabric::~FakeFabric() {
  await_ends();
  const FakeObjects left = objects();
  if (left != FakeObjects{}) {
    FAIL_CHECK("not destroyed: ", left.contexts, " contexts, ", left.domains, " protection domains, ",
               left.regions, " memory regions, ", left.channels, " channels, ", left.completion_queues,
               " completion queues, ", left.receive_queues, " shared receive queues, ", left.queue_pairs,
               " queue pairs");
  }
  for (const std::string& text : take_misuses()) FAIL_CHECK("misuse of verbs: ", text);
}

const verbs::Functions& FakeFabric::functions() const { return fabric_->table; }

bool FakeFabric::progress(int steps) {
  const Lock lock(fabric_->mutex);
  for (int i = 0; i < steps && fabric_->busy(); ++i) fabric_->step();
  return fabric_->busy();
}

void FakeFabric::settle() {
  const Lock lock(fabric_->mutex);
  while (fabric_->step()) {
  }
}

FakeCounters FakeFabric::counters(std::string_view name) const {
  const Lock lock(fabric_->mutex);
  FakeCounters sum;
  for (const auto& device : fabric_->devices) {
    if (!name.empty() && device->options.name != name) continue;
    const FakeCounters& one = device->counters;
    sum.doorbells += one.doorbells;
    sum.work_requests += one.work_requests;
    sum.receives += one.receives;
    sum.completions += one.completions;
    sum.rnr_events += one.rnr_events;
    sum.notifications += one.notifications;
    sum.bytes += one.bytes;
    sum.cq_high_water = std::max(sum.cq_high_water, one.cq_high_water);
  }
  return sum;
}

FakeObjects FakeFabric::objects() const {
  const Lock lock(fabric_->mutex);
  const auto count = [](const auto& list) {
    int alive = 0;
    for (const auto& object : list) alive += object->alive ? 1 : 0;
    return alive;
  };
  return {.contexts = count(fabric_->contexts),
          .domains = count(fabric_->domains),
          .regions = count(fabric_->memories),
          .channels = count(fabric_->channels),
          .completion_queues = count(fabric_->completion_queues),
          .receive_queues = count(fabric_->receive_queues),
          .queue_pairs = count(fabric_->queue_pairs)};
}

int FakeFabric::registrations(const void* data) const {
  const Lock lock(fabric_->mutex);
  return static_cast<int>(std::ranges::count_if(
      fabric_->memories, [data](const auto& memory) { return memory->alive && memory->host == data; }));
}

std::vector<FakeQueuePair> FakeFabric::queue_pairs(std::string_view name) const {
  const Lock lock(fabric_->mutex);
  std::vector<FakeQueuePair> out;
  for (const auto& qp : fabric_->queue_pairs) {
    if (!qp->alive || (!name.empty() && qp->device().options.name != name)) continue;
    out.push_back({.device = qp->device().options.name,
                   .number = qp->qp_num,
                   .attributes = qp->attributes,
                   .capacity = qp->capacity,
                   .waiting = qp->sends.size(),
                   .occupied = static_cast<std::size_t>(qp->posted - qp->freed),
                   .silence = qp->silence});
    out.back().attributes.qp_state = qp->now;
  }
  return out;
}

std::size_t FakeFabric::receives_waiting(std::string_view name) const {
  const Lock lock(fabric_->mutex);
  const fake::Device* const device = fabric_->find(name);
  std::size_t out = 0;
  for (const auto& srq : fabric_->receive_queues) {
    if (srq->alive && srq->context->device == device) out += srq->receives.size();
  }
  return out;
}

std::vector<std::string> FakeFabric::take_misuses() {
  const Lock lock(fabric_->mutex);
  return std::exchange(fabric_->misuses, {});
}

void FakeFabric::fail_call(Call call, int error, int nth) {
  const Lock lock(fabric_->mutex);
  fabric_->call_faults.push_back({call, error, nth});
}

void FakeFabric::refuse_registration(const void* data) {
  const Lock lock(fabric_->mutex);
  fabric_->refused_memory = data;
}

void FakeFabric::hold_registration(const void* data) {
  {
    const Lock lock(fabric_->mutex);
    fabric_->held_memory = data;
  }
  hold_call(Call::kRegister, data != nullptr);
}

void FakeFabric::hold_call(Call call, bool hold) {
  const Lock lock(fabric_->mutex);
  if (hold)
    fabric_->held.insert(call);
  else
    fabric_->held.erase(call);
  fabric_->let_go.notify_all();
}

int FakeFabric::held_calls() const {
  const Lock lock(fabric_->mutex);
  return fabric_->held_calls;
}

void FakeFabric::fail_work(ibv_wc_status status, int nth, WorkFilter filter) {
  const Lock lock(fabric_->mutex);
  fabric_->work_faults.push_back({status, nth, std::move(filter)});
}

int FakeFabric::faults_left() const {
  const Lock lock(fabric_->mutex);
  return static_cast<int>(fabric_->call_faults.size() + fabric_->work_faults.size());
}

void FakeFabric::set_link(std::string_view a, std::string_view b, LinkState state) {
  const Lock lock(fabric_->mutex);
  fabric_->links[{fabric_->find(a), fabric_->find(b)}] = state;
  fabric_->links[{fabric_->find(b), fabric_->find(a)}] = state;
}

void FakeFabric::freeze(std::string_view device, bool frozen) {
  const Lock lock(fabric_->mutex);
  fabric_->find(device)->frozen = frozen;
  fabric_->work_arrived.notify_all();
}

void FakeFabric::hold_completions(std::string_view name, bool hold) {
  const Lock lock(fabric_->mutex);
  Device& device = *fabric_->find(name);
  device.holding = hold;
  if (!hold) fabric_->release_held(device);
}

bool FakeFabric::holds_completions() const {
  const Lock lock(fabric_->mutex);
  return std::ranges::any_of(fabric_->devices, [](const auto& device) { return device->holding; });
}

void FakeFabric::kill(std::string_view name) {
  const Lock lock(fabric_->mutex);
  Device& device = *fabric_->find(name);
  device.dead = true;
  for (const auto& context : fabric_->contexts) {
    if (&context->parent() == &device) context->dead = true;
  }
  for (const auto& qp : fabric_->queue_pairs) {
    if (qp->alive && &qp->device() == &device) fabric_->to_error(*qp);
  }
  fabric_->raise_port(device, IBV_EVENT_DEVICE_FATAL, 0);
}

void FakeFabric::revive(std::string_view name) {
  const Lock lock(fabric_->mutex);
  fabric_->find(name)->dead = false;
}

void FakeFabric::raise(std::string_view device, ibv_event_type type, int port) {
  const Lock lock(fabric_->mutex);
  fabric_->raise_port(*fabric_->find(device), type, port);
}

void FakeFabric::set_port_state(std::string_view name, ibv_port_state state, int port) {
  const Lock lock(fabric_->mutex);
  Device& device = *fabric_->find(name);
  SLIME_CHECK(device.port(port) != nullptr);
  device.port(port)->state = state;
  fabric_->raise_port(device, state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, port);
}

void FakeFabric::set_gids(std::string_view name, std::vector<FakeGid> gids, int port) {
  const Lock lock(fabric_->mutex);
  Device& device = *fabric_->find(name);
  SLIME_CHECK(device.port(port) != nullptr);
  device.port(port)->gids = std::move(gids);
  fabric_->raise_port(device, IBV_EVENT_GID_CHANGE, port);
}

FakeFabric::Dmabuf FakeFabric::make_dmabuf(std::size_t bytes) {
  const Lock lock(fabric_->mutex);
  fake::DmabufMemory memory;
  memory.fd = UniqueFd(::memfd_create("fake-dmabuf", MFD_CLOEXEC));
  SLIME_CHECK(memory.fd.valid() && ::ftruncate(memory.fd.get(), static_cast<off_t>(bytes)) == 0);
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd.get(), 0);
  SLIME_CHECK(mapped != MAP_FAILED);
  memory.bytes = {static_cast<std::byte*>(mapped), bytes};
  struct stat status {};
  SLIME_CHECK(::fstat(memory.fd.get(), &status) == 0);
  memory.inode = status.st_ino;
  const Dmabuf out{.fd = ::dup(memory.fd.get()), .bytes = memory.bytes};
  SLIME_CHECK(out.fd >= 0);
  fabric_->dmabufs.push_back(std::move(memory));
  return out;
}

}  // namespace slime::transport::testing
