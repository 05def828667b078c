#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/counters.h"
#include "transport/endpoint.h"
#include "transport/loop.h"
#include "transport/memory.h"
#include "transport/verbs_options.h"

namespace slime::transport {

struct PortOptions {
  std::uint32_t slot_bytes = limits::kSlotBytes;
  std::uint32_t pool_slots = limits::kPoolSlots;
  std::uint32_t base_credits = limits::kBaseCredits;
  std::uint32_t max_credits = limits::kMaxCredits;
  // How long a peer may be unreachable before its connections end (transport/outage.h).
  Nanos outage_tolerated = limits::kOutageTolerated;
  // Returns kInvalidArgument, with the field's name, if a field is out of range: base_credits <=
  // max_credits <= pool_slots, 256 B <= slot_bytes <= 1 MiB, ...
  [[nodiscard]] Status validate() const;
};

// The names of both ends, for texts, and the role of this side in the handshake.
struct Introduction {
  std::string local_name;  // for texts
  std::string peer_name;
  bool initiator = false;
};

// An endpoint that is being made: it has the parameters that this side sends in the handshake, and
// makes the endpoint from the peer's parameters. The destructor gives back what was reserved.
class PendingEndpoint {
 public:
  PendingEndpoint() = default;
  PendingEndpoint(const PendingEndpoint&) = delete;
  PendingEndpoint& operator=(const PendingEndpoint&) = delete;
  virtual ~PendingEndpoint() = default;
  // Calls `ready` once on the loop: with OK when parameters() can be called, else with the reason
  // why this side has no parameters. Calls it inside this function, or later if the adapter needs
  // time. Destroying this object cancels the call; `ready` may destroy this object.
  virtual void when_ready(UniqueFunction<void(Status)> ready) { ready(Status()); }
  // Returns the provider's parameters (slot size, credits, queue pair addresses, ...) to send to
  // the peer: at most 1 KiB.
  [[nodiscard]] virtual ByteVector parameters() const = 0;
  // Makes the endpoint. `socket` is the connection of the handshake: non-blocking, and all bytes of
  // the handshake were read and written. tcp moves its data on it; other providers watch it to
  // notice the peer's death. kCorrupt if `peer_parameters` do not parse.
  virtual Result<std::unique_ptr<Endpoint>> finish(Bytes peer_parameters, UniqueFd socket,
                                                   Introduction who) = 0;
  // Call after finish() failed. Returns true if it failed because the two devices cannot reach each
  // other: another provider may then work.
  [[nodiscard]] virtual bool unreached() const { return false; }
};

// A Device used on one Loop: its endpoints, and the receive pool that they share. Lifetime:
// outlives its endpoints and the messages that they delivered. Thread: the loop.
class Port {
 public:
  Port() = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  virtual ~Port() = default;
  // Reserves base_credits for one more endpoint; kResourceExhausted if the pool has too few slots.
  virtual Result<std::unique_ptr<PendingEndpoint>> prepare() = 0;
  [[nodiscard]] virtual std::size_t endpoints() const = 0;
  [[nodiscard]] virtual std::uint32_t free_slots() const = 0;  // not promised to any peer
  [[nodiscard]] virtual PortCounters counters() const = 0;
};

// Purpose of a registration. kOnce: one peer reads the memory once, so the provider prepares
// nothing for further reads.
enum class Use : std::uint8_t { kLasting, kOnce };

// A registration domain of one fabric in this process. Thread: any. Lifetime: outlives its regions
// and ports.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;
  // Registers memory that the caller owns and keeps until the region is closed. kInvalidArgument
  // for a null or empty range; kUnimplemented for a MemoryKind that this build does not support.
  virtual Result<DeviceRegion> register_memory(void* data, std::size_t bytes, Rights rights,
                                               MemoryKind kind = MemoryKind::kHost,
                                               Use use = Use::kLasting) = 0;
  // Allocates page-aligned zeroed memory in a memfd, whose pages all exist, and registers it. With
  // huge pages: kResourceExhausted (the text says how many the pool lacks), or kUnimplemented if
  // the kernel has no huge pages. The region has `bytes` bytes, and no other region shares its last
  // page.
  virtual Result<DeviceRegion> allocate(std::size_t bytes, Rights rights, MemoryKind kind = MemoryKind::kHost,
                                        Pages pages = Pages::kDefault) = 0;
  virtual Result<std::unique_ptr<Port>> open_port(Loop& loop, PortOptions options = {}) = 0;
  // Returns OK if connections can be made over the device now, else the reason why not. This may
  // change from call to call.
  [[nodiscard]] virtual Status usable() const { return {}; }
  // Returns the hint for offers of this device (transport/choice.h), by which a peer can tell
  // whether it reaches this device. At most limits::kHintBytes; empty if every peer can reach it.
  [[nodiscard]] virtual ByteVector hint() const { return {}; }
  // Returns true if peers always use the pages that the memory had when it was registered. If the
  // owner then gives pages back (MADV_REMOVE, MADV_DONTNEED) while the region is open, peers go on
  // reading and writing the old pages.
  [[nodiscard]] virtual bool pins() const { return false; }
  // Returns true if peers reach memory of allocate() so much faster than memory that is registered
  // for one use that copying the bytes there pays: peers map it, or registering takes long.
  [[nodiscard]] virtual bool prefers_own_memory() const { return pins(); }
  // Returns the adapter's own counters: all that are not zero, and always those for a receiver that
  // was not ready. Empty if there is no adapter or its counters cannot be read. Reads files, so do
  // not call it on the loop.
  [[nodiscard]] virtual std::vector<DeviceCounter> counters() const { return {}; }
};

// Properties of a provider by which the layers above choose among several providers.
struct ProviderTraits {
  // If true, "auto" uses the provider when it works. If false, an agent must name the provider.
  bool automatic = false;
  // The provider reaches every peer. If such a provider does not work, "auto" fails.
  bool reaches_everyone = false;
  // The provider reaches peers on the same machine only.
  bool same_machine_only = false;
  // Preparing an endpoint takes long, so an initiator prepares one only after the acceptor has
  // chosen this provider.
  bool slow_to_prepare = false;
  // The device may refuse memory that other devices accept, because of its hardware or limits of
  // the machine. An agent that has other devices then uses such memory over those only. It
  // registers memory with this device from the first connection over it on.
  bool may_refuse_memory = false;
  // Reason for a choice of this provider, for people: "same host and user". Empty: no reason is
  // given.
  std::string_view fits = {};
  // Compares the hints (Device::hint()) of two peers. Returns OK if the peers can reach each other,
  // else the reason why not. `theirs` may hold any bytes. Null function: all peers can reach each
  // other.
  Status (*check_hints)(Bytes ours, std::string_view self_name, Bytes theirs,
                        std::string_view peer_name) = nullptr;
};
inline constexpr ProviderTraits kPlainTraits{};

// One fabric. Thread: any.
class Provider {
 public:
  Provider() = default;
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  virtual ~Provider() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Returns the provider's traits, which stay valid until the process ends.
  [[nodiscard]] virtual const ProviderTraits& traits() const { return kPlainTraits; }
  // Returns OK if the provider can work on this machine, else the reason why not.
  [[nodiscard]] virtual Status available() const = 0;
  virtual Result<std::unique_ptr<Device>> open_device() = 0;
  // Returns whether the user has named what this provider is to use: an agent that picks its
  // providers itself then needs this one.
  [[nodiscard]] virtual bool required() const { return false; }
};

// Settings of providers that one agent may have for itself.
struct ProviderSettings {
  std::optional<VerbsOptions> verbs{};  // none: those of the environment
};

struct ProviderEntry {
  std::string_view name;
  std::function<std::unique_ptr<Provider>(const ProviderSettings& settings)> make;
};
using ProviderTable = std::span<const ProviderEntry>;
// Returns the providers of this build, in the order in which "auto" prefers them. This table is
// the only place that names all providers (provider_table.cc).
ProviderTable provider_table();

// Makes the provider `name` of `table`. Returns kNotFound, with the names in the table, for another
// name.
Result<std::unique_ptr<Provider>> make_provider(std::string_view name, ProviderTable table = provider_table(),
                                                const ProviderSettings& settings = {});
std::vector<std::string> provider_names();

}  // namespace slime::transport
