#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "transport/owned_memory.h"
#include "transport/provider.h"
#include "transport/region_uses.h"
#include "transport/verbs/context.h"
#include "transport/verbs/dmabuf.h"

namespace slime::transport::verbs {

class Registration;
struct RegionRecord;

// A user of a device, such as a port: resets endpoints when a region is closed, and handles the
// device's events. Thread: any.
class RegionUsers {
 public:
  virtual ~RegionUsers() = default;
  // Resets the endpoints that have posted operations on the region of `uses` (null: all endpoints).
  // The operations drop their uses once the queue pairs are destroyed, and then move no more bytes.
  // If the call runs on the users' loop, this is done when it returns; otherwise the loop does it
  // later.
  virtual void reset_users(const RegionUses* uses) = 0;
  [[nodiscard]] virtual std::shared_ptr<Loop> users_loop() const = 0;  // null: gone
  // Called for an event of the device. `queue_pair`: number of the queue pair that the event
  // concerns; 0: none.
  virtual void on_device_event(ibv_event_type type, std::uint32_t queue_pair) = 0;
};

// State of a device that its regions and ports share. Thread: any.
class DeviceState {
 public:
  // `exporter` outlives it.
  explicit DeviceState(std::shared_ptr<Context> context,
                       const DmabufExporter& exporter = cuda_dmabuf_exporter());
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;
  ~DeviceState();

  const DmabufExporter& exporter;
  // Returns the context in which new objects are made: another one after the device was opened
  // again.
  [[nodiscard]] std::shared_ptr<Context> context() const;

  // ---- for ports
  // Adds a port as user. The current context counts as in use until the port calls remove_users().
  void add_users(const std::shared_ptr<RegionUsers>& users);
  void remove_users();
  // Notes that the device, opened as `failed`, failed for good: it makes no connections until
  // found().
  void lose(const Context& failed, const Status& reason);
  // Opens the device again after it was lost, and registers its regions again. Does nothing if
  // another port has done so. Returns kUnavailable while ports still use the lost context. Blocks:
  // do not call it on a loop.
  Status reopen();
  // Notes that a port works on the context that reopen() made: the device is no longer lost.
  void found();
  // Handles a device event that a port has read: queries port and GIDs again if they may have
  // changed, then tells every port.
  void tell_event(ibv_event_type type, std::uint32_t queue_pair);
  // Returns OK, or why this device makes no connections: it is lost, or the registration of a
  // closed region could not be ended, so that peers may still reach the memory.
  [[nodiscard]] Status usable() const;

  // ---- for regions
  [[nodiscard]] std::vector<std::shared_ptr<RegionUsers>> users();
  void set_unusable(const Status& reason);
  // Adds a region, which reopen() registers again until the record is closed. Returns false if
  // `context` is not the newest context: the caller must first register with the newest.
  [[nodiscard]] bool add_region(const std::shared_ptr<RegionRecord>& record, const Context& context);
  // Returns a new id for a region, or kResourceExhausted if the device has too many regions.
  Result<Handle> new_region_id();
  void drop_region_id(Handle id);

  // Notes memory that allocate() made, by its address. Regions inside of it can share its
  // registration.
  void add_allocation(const std::byte* data, std::uint64_t bytes, std::shared_ptr<Registration> registration);
  void remove_allocation(const std::byte* data);
  // Returns the registration of the allocation that contains the whole range; null if none does.
  std::shared_ptr<Registration> find_allocation(const std::byte* data, std::uint64_t bytes) const;
  // Returns an rkey that gives access to no region. Regions that peers may not use publish this
  // key.
  Result<std::uint32_t> useless_key();

  // Returns whether registrations ask for relaxed ordering: false after the driver has refused it
  // once.
  [[nodiscard]] bool relaxed_ordering() const { return relaxed_ordering_.load(std::memory_order_relaxed); }
  void no_relaxed_ordering();

 private:
  struct Allocation {
    std::uint64_t bytes = 0;
    std::shared_ptr<Registration> registration;
  };

  std::atomic<bool> relaxed_ordering_;
  Mutex reopen_mutex_;  // held during reopen(), so that only one runs; locked before mutex_
  mutable Mutex mutex_;
  std::shared_ptr<Context> context_ SLIME_GUARDED_BY(mutex_);
  int users_in_place_ SLIME_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<RegionRecord>> records_ SLIME_GUARDED_BY(mutex_);
  // size of records_ after closed records were last removed
  std::size_t records_checked_ SLIME_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<RegionUsers>> users_ SLIME_GUARDED_BY(mutex_);
  SlotMap<None> region_ids_ SLIME_GUARDED_BY(mutex_){limits::kMaxRegions};
  std::map<const std::byte*, Allocation> allocations_ SLIME_GUARDED_BY(mutex_);
  OwnedMemory useless_memory_ SLIME_GUARDED_BY(mutex_);
  std::shared_ptr<Registration> useless_ SLIME_GUARDED_BY(mutex_);  // destroyed before its memory
  Status unusable_ SLIME_GUARDED_BY(mutex_);
  Status lost_ SLIME_GUARDED_BY(mutex_);
};

// Opens a port of the device on `loop`; defined in verbs/lasting_port.cc.
Result<std::unique_ptr<Port>> open_verbs_port(std::shared_ptr<DeviceState> device, Loop& loop,
                                              PortOptions options);

// The device of the verbs provider: one port of one adapter.
class VerbsDevice final : public Device {
 public:
  explicit VerbsDevice(std::shared_ptr<DeviceState> state) : state_(std::move(state)) {}

  Result<DeviceRegion> register_memory(void* data, std::size_t bytes, Rights rights, MemoryKind kind,
                                       Use use) override;
  Result<DeviceRegion> allocate(std::size_t bytes, Rights rights, MemoryKind kind, Pages pages) override;
  Result<std::unique_ptr<Port>> open_port(Loop& loop, PortOptions options) override;
  [[nodiscard]] Status usable() const override { return state_->usable(); }
  [[nodiscard]] ByteVector hint() const override;
  [[nodiscard]] bool pins() const override { return true; }
  [[nodiscard]] std::vector<DeviceCounter> counters() const override;

  [[nodiscard]] const std::shared_ptr<DeviceState>& state() const { return state_; }

 private:
  const std::shared_ptr<DeviceState> state_;
};

}  // namespace slime::transport::verbs
