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

// The providers of an agent, in order of preference, with a device for each provider that works on
// this machine. Thread: any. Lifetime: outlives its registrations and ports.
class Devices {
 public:
  // Opens the provider named `provider`, which must work; or, for "auto", each automatic provider
  // that works, while status() tells why the others do not. Errors: kNotFound for an unknown name;
  // the error of a named or required provider, or of one that reaches every peer, if it does not
  // work; kInvalidArgument for a wrong setting of the user.
  static Result<std::shared_ptr<Devices>> open(std::string_view provider,
                                               transport::ProviderTable table = transport::provider_table(),
                                               const transport::ProviderSettings& settings = {});

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] const std::string& name(std::size_t index) const { return entries_[index].name; }
  // Returns the device; null if its provider does not work here.
  [[nodiscard]] transport::Device* device(std::size_t index) const { return entries_[index].device.get(); }
  // Returns OK, or why no new connection uses the device.
  [[nodiscard]] Status status(std::size_t index) const;
  [[nodiscard]] std::optional<std::size_t> find(std::string_view provider) const;
  // Returns the names of the providers that work.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool automatic() const { return automatic_; }
  // Returns "pinned" if the user named the provider; else, for example, "auto: shm, tcp; no verbs:
  // ...".
  [[nodiscard]] std::string describe() const;
  // Opens a port of each device. The element of a provider without a device is null. Call once,
  // before any other use of the devices. With "auto", logs and drops a device that opens no port
  // (the usual cause is the limit on locked memory), unless it must work.
  Result<std::vector<std::unique_ptr<transport::Port>>> open_ports(
      transport::Loop& loop, const transport::PortOptions& options = {});
  // Returns the outlets to offer in a handshake: name, port, device and status of each provider.
  // `ports`: the result of open_ports().
  [[nodiscard]] std::vector<transport::Outlet> outlets(
      const std::vector<std::unique_ptr<transport::Port>>& ports) const;

  // Notes that a connection uses the device: memory is registered with the device at once from now
  // on. Returns true if that is new. Devices that are not lazy are used from the start.
  bool use(std::size_t index);

  // Registers memory with each used device, and with a lazy device if no other device takes the
  // memory. A device is lazy if it may refuse memory and the agent has others. A lazy device is
  // left out if it refuses (the usual cause is the limit on locked memory): operations that name
  // the memory over a connection of this device fail with the cause, and others go on. The first
  // refusal is logged.
  Result<Registrations> allocate(std::size_t bytes, transport::Rights rights, transport::MemoryKind kind,
                                 transport::Pages pages = transport::Pages::kDefault);
  Result<Registrations> register_memory(void* data, std::size_t bytes, transport::Rights rights,
                                        transport::MemoryKind kind);
  // Registers the memory with the used devices for which that was deferred.
  void complete(Registrations& memory);

 private:
  struct Entry {
    std::string name;
    Status status;  // why there is no device
    const transport::ProviderTraits* traits = &transport::kPlainTraits;
    std::unique_ptr<transport::Provider> provider;
    std::unique_ptr<transport::Device> device;  // destroyed before `provider`
  };

  static Status open_one(Entry& entry);
  // Returns whether the agent goes on without the device for memory that the device refuses.
  [[nodiscard]] bool optional(const Entry& entry) const {
    return automatic_ && entry.traits->may_refuse_memory;
  }
  [[nodiscard]] std::vector<bool> used() const;
  // Returns the index of the first device that must accept all memory. Its registration owns the
  // memory that allocate() makes.
  [[nodiscard]] std::size_t owner() const;
  Status add(Registrations& to, std::size_t index, Result<transport::DeviceRegion> region);
  void warn(std::size_t index, const Status& reason);
  // Returns the end of the error text about memory that a device refused: which provider can use
  // the memory. Empty: none.
  [[nodiscard]] std::string alternative() const;

  bool automatic_ = false;
  std::vector<Entry> entries_;
  mutable Mutex mutex_;
  // For each device: a refusal was logged.
  std::vector<bool> warned_ SLIME_GUARDED_BY(mutex_);
  // For each device: memory is registered with it at once.
  std::vector<bool> used_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::agent
