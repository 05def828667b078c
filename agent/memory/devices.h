#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/memory/registrations.h"
#include "base/mutex.h"
#include "transport/connect.h"
#include "transport/provider.h"

namespace slime::agent {

inline constexpr std::string_view kAuto = "auto";

// The providers of an agent, in order of preference, and the device of each that works here.
// Thread: any. Lifetime: outlives its registrations and ports.
class Devices {
 public:
  // Opens the provider `provider` of `table`, which must work; or, for "auto", each automatic
  // provider of `table` that works. status() tells why another provider does not. Errors:
  // kNotFound; the reason why a named provider, or a provider that reaches everyone, does not work;
  // kInvalidArgument for a wrong setting of the user.
  static Result<std::shared_ptr<Devices>> open(std::string_view provider,
                                               transport::ProviderTable table = transport::provider_table());

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] const std::string& name(std::size_t index) const { return entries_[index].name; }
  // Returns null if the device does not work here.
  [[nodiscard]] transport::Device* device(std::size_t index) const { return entries_[index].device.get(); }
  // Returns OK, or why no new connection uses the device.
  [[nodiscard]] Status status(std::size_t index) const;
  [[nodiscard]] std::optional<std::size_t> find(std::string_view provider) const;
  // Those that work.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool automatic() const { return automatic_; }
  // Returns "pinned", or "auto: shm, tcp; no verbs: ...".
  [[nodiscard]] std::string describe() const;
  // Opens a port of each device; null if there is no device. Call once, before any other use of the
  // devices. With "auto", leaves out a device that opens no port (the usual cause is the limit on
  // locked memory), and logs that.
  Result<std::vector<std::unique_ptr<transport::Port>>> open_ports(
      transport::Loop& loop, const transport::PortOptions& options = {});
  // Returns the outlets for handshakes. `ports` has one port for each device.
  [[nodiscard]] std::vector<transport::Outlet> outlets(
      const std::vector<std::unique_ptr<transport::Port>>& ports) const;

  // Registers memory with each device. With "auto", a device that may refuse memory is left out if
  // it refuses (the usual cause is the limit on locked memory): operations that name the memory
  // over a connection of this device fail with the cause, and others go on. The first refusal is
  // logged.
  Result<Registrations> allocate(std::size_t bytes, transport::Rights rights, transport::MemoryKind kind,
                                 transport::Pages pages = transport::Pages::kDefault);
  Result<Registrations> register_memory(void* data, std::size_t bytes, transport::Rights rights,
                                        transport::MemoryKind kind);

 private:
  struct Entry {
    std::string name;
    Status status;  // why there is no device
    const transport::ProviderTraits* traits = &transport::kPlainTraits;
    std::unique_ptr<transport::Provider> provider;
    std::unique_ptr<transport::Device> device;  // after the provider: goes first
  };

  static Status open_one(Entry& entry);
  // Returns whether the agent does without the device for memory that the device refuses.
  [[nodiscard]] bool optional(const Entry& entry) const {
    return automatic_ && entry.traits->may_refuse_memory;
  }
  // Returns the first device that must accept all memory; it owns memory that Slime makes.
  [[nodiscard]] std::size_t owner() const;
  Status add(Registrations& to, std::size_t index, Result<transport::DeviceRegion> region);
  void warn(std::size_t index, const Status& reason);
  // Returns advice for memory that a device refused: the end of an error text, or nothing.
  [[nodiscard]] std::string alternative() const;

  bool automatic_ = false;
  std::vector<Entry> entries_;
  Mutex mutex_;
  std::vector<bool> warned_ SLIME_GUARDED_BY(mutex_);  // of each: that it did not take some memory
};

}  // namespace slime::agent
