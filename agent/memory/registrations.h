#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "agent/limits.h"
#include "base/clock.h"
#include "base/result.h"
#include "transport/memory.h"

namespace slime::agent {

// One piece of memory, registered with each device of an agent that accepts it, now or later.
// Movable. Thread: one at a time; missing() and on() may run beside the add() or miss() of a
// deferred device.
class Registrations {
 public:
  // `devices`: number of devices. `owner`: index of the device whose registration owns the memory,
  // if Slime allocated it. The owner's registration closes last.
  Registrations(std::size_t devices, std::size_t owner)
      : owner_(owner),
        regions_(devices),
        missing_(devices),
        deferred_(std::make_unique<std::atomic<bool>[]>(devices)) {}
  Registrations(Registrations&&) noexcept = default;
  Registrations& operator=(Registrations&&) = delete;
  ~Registrations();

  void add(std::size_t device, transport::DeviceRegion region);
  // Records why the memory is not registered with this device.
  void miss(std::size_t device, Status why);
  // Leaves the device for later: add() or miss() follows when the device is used.
  void defer(std::size_t device) { deferred_[device].store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool deferred(std::size_t device) const {
    return deferred_[device].load(std::memory_order_acquire);
  }

  [[nodiscard]] bool any() const { return any_ != kNone; }
  [[nodiscard]] std::byte* data() const { return regions_[any_].data(); }
  [[nodiscard]] std::uint64_t length_bytes() const { return regions_[any_].length_bytes(); }
  [[nodiscard]] transport::Rights rights() const { return regions_[any_].rights(); }
  [[nodiscard]] transport::MemoryKind kind() const { return regions_[any_].kind(); }
  // Returns whether on() can be used with this device: missing() says why not.
  [[nodiscard]] bool usable(std::size_t device) const {
    return !deferred(device) && regions_[device].valid() && regions_[device].registered().ok();
  }
  // Returns OK if on() can be used with this device, else the reason why not.
  [[nodiscard]] Status missing(std::size_t device) const;
  // Returns the registration with this device. All registrations lie in one array, in the order of
  // devices.
  [[nodiscard]] const transport::DeviceRegion& on(std::size_t device) const { return regions_[device]; }

  // Closes all registrations within `bound`, one after the other, as
  // transport::DeviceRegion::close() does. Returns the first error.
  Status close(Nanos bound);

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::size_t owner_;
  std::size_t any_ = kNone;
  bool kept_ = false;  // hardware may still reach the memory: never free it
  std::vector<transport::DeviceRegion> regions_;
  std::vector<Status> missing_;
  // For each device: its registration is still to come. add() and miss() store false after they set
  // regions_ or missing_, so that other threads that load false see these.
  std::unique_ptr<std::atomic<bool>[]> deferred_;
};

}  // namespace slime::agent
