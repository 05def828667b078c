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

// A user of a device: resets endpoints for its regions, and gets its events. Thread: any.
class RegionUsers {
 public:
  virtual ~RegionUsers() = default;
  // Resets the endpoints that have posted operations on the region (null: every endpoint). Drops
  // their uses once their queue pairs are destroyed, so that the operations move no more bytes.
  // When the call returns on the users' loop, this is done; on other threads it is done later, on
  // the loop.
  virtual void reset_users(const RegionUses* uses) = 0;
  [[nodiscard]] virtual std::shared_ptr<Loop> users_loop() const = 0;  // null: gone
  // Called for an event of the device; `queue_pair` is the number of the queue pair that it
  // concerns, or 0.
  virtual void on_device_event(ibv_event_type type, std::uint32_t queue_pair) = 0;
};

// State that a device shares with its regions and ports. Thread: any.
class DeviceState {
 public:
  // `exporter` outlives it.
  explicit DeviceState(std::shared_ptr<Context> context,
                       const DmabufExporter& exporter = cuda_dmabuf_exporter());
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;
  ~DeviceState();

  const DmabufExporter& exporter;
  // Returns the context for new objects. After the device was opened again, this is another
  // context.
  [[nodiscard]] std::shared_ptr<Context> context() const;

  // ---- for ports
  // Adds a port. Its context is in use until remove_users().
  void add_users(const std::shared_ptr<RegionUsers>& users);
  void remove_users();
  // Notes that the device failed for good: it makes no connections until found().
  void lose(const Context& failed, const Status& reason);
  // Opens the device again after it was lost, and registers its regions anew; does nothing if
  // another port did. kUnavailable while ports use the lost context. Blocks: do not call it on a
  // loop.
  Status reopen();
  // Notes that a port works on the context that reopen() made.
  void found();
  // Takes an event of the device that a port has read: probes port and GIDs again if they may have
  // changed, then tells every port.
  void tell_event(ibv_event_type type, std::uint32_t queue_pair);
  // Returns OK, or why this device makes no connections: it is lost, or memory that peers may still
  // reach was given back.
  [[nodiscard]] Status usable() const;

  // ---- for regions
  [[nodiscard]] std::vector<std::shared_ptr<RegionUsers>> users();
  void set_unusable(const Status& reason);
  // Adds a region: reopen() registers it anew, until its record is closed. Returns false if
  // `context` is not the newest: register with the newest first.
  [[nodiscard]] bool add_region(const std::shared_ptr<RegionRecord>& record, const Context& context);
  // Returns kResourceExhausted if the device has too many regions.
  Result<Handle> new_region_id();
  void drop_region_id(Handle id);

  // Memory that allocate() made, by address, so that parts of it need no registration of their own.
  void add_allocation(const std::byte* data, std::uint64_t bytes, std::shared_ptr<Registration> registration);
  void remove_allocation(const std::byte* data);
  // Returns the registration of the allocation that holds the whole range; null if there is none.
  std::shared_ptr<Registration> find_allocation(const std::byte* data, std::uint64_t bytes) const;
  // Returns a key of this device that gives access to nothing, for regions that peers may not use.
  Result<std::uint32_t> useless_key();

  // Returns whether registrations ask for relaxed ordering. If a driver refuses it once, it is not
  // asked again.
  [[nodiscard]] bool relaxed_ordering() const { return relaxed_ordering_.load(std::memory_order_relaxed); }
  void no_relaxed_ordering();

 private:
  struct Allocation {
    std::uint64_t bytes = 0;
    std::shared_ptr<Registration> registration;
  };

  std::atomic<bool> relaxed_ordering_;
  Mutex reopen_mutex_;  // one reopen() at a time; locked before mutex_
  mutable Mutex mutex_;
  std::shared_ptr<Context> context_ SLIME_GUARDED_BY(mutex_);
  int users_in_place_ SLIME_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<RegionRecord>> records_ SLIME_GUARDED_BY(mutex_);
  // number of records when closed ones were last dropped
  std::size_t records_checked_ SLIME_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<RegionUsers>> users_ SLIME_GUARDED_BY(mutex_);
  SlotMap<None> region_ids_ SLIME_GUARDED_BY(mutex_){limits::kMaxRegions};
  std::map<const std::byte*, Allocation> allocations_ SLIME_GUARDED_BY(mutex_);
  OwnedMemory useless_memory_ SLIME_GUARDED_BY(mutex_);
  std::shared_ptr<Registration> useless_ SLIME_GUARDED_BY(mutex_);  // destroyed before its memory
  Status unusable_ SLIME_GUARDED_BY(mutex_);
  Status lost_ SLIME_GUARDED_BY(mutex_);
};

// Opens a port of the device on a loop (verbs/lasting_port.cc).
Result<std::unique_ptr<Port>> open_verbs_port(std::shared_ptr<DeviceState> device, Loop& loop,
                                              PortOptions options);

// The device of the verbs provider: one adapter and one port of it.
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
