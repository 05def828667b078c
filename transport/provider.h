#pragma once

#include <functional>
#include <memory>
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

namespace slime::transport {

struct PortOptions {
  std::uint32_t slot_bytes = limits::kSlotBytes;
  std::uint32_t pool_slots = limits::kPoolSlots;
  std::uint32_t base_credits = limits::kBaseCredits;
  std::uint32_t max_credits = limits::kMaxCredits;
  // How long a peer may be unreachable before its connections end (transport/outage.h).
  Nanos outage_tolerated = limits::kOutageTolerated;
  // kInvalidArgument with the field's name: base <= max <= pool, 256 B <= slot <= 1 MiB, ...
  [[nodiscard]] Status validate() const;
};

// What both ends tell each other while they connect.
struct Introduction {
  std::string local_name;  // for texts
  std::string peer_name;
  bool initiator = false;
};

// A connection that is being made: what this side tells the peer in the handshake, then what it
// makes of the answer. Dropping this object gives back what it reserved.
class PendingEndpoint {
 public:
  PendingEndpoint() = default;
  PendingEndpoint(const PendingEndpoint&) = delete;
  PendingEndpoint& operator=(const PendingEndpoint&) = delete;
  virtual ~PendingEndpoint() = default;
  // Calls `ready` once on the loop: with OK when parameters() are there, or with the reason why
  // there can be none. Calls it inside this function, or later if the adapter needs time. Dropping
  // this object cancels the call; `ready` may drop it.
  virtual void when_ready(UniqueFunction<void(Status)> ready) { ready(Status()); }
  // The provider's parameters (slot size, credits, queue pair addresses, ...): at most 1 KiB.
  [[nodiscard]] virtual ByteVector parameters() const = 0;
  // `socket` is the handshake's connection, non-blocking, with nothing more to read or write by the
  // handshake: tcp moves its data on it, others watch it for the peer's death. kCorrupt when
  // `peer_parameters` do not parse.
  virtual Result<std::unique_ptr<Endpoint>> finish(Bytes peer_parameters, UniqueFd socket,
                                                   Introduction who) = 0;
  // After finish() failed: returns whether the path between the two devices was the reason, so that
  // another provider may work.
  [[nodiscard]] virtual bool unreached() const { return false; }
};

// A Device on one Loop: the receive pool that its endpoints share, and the endpoints. Lifetime:
// outlives its endpoints and the messages they delivered. Thread: the loop.
class Port {
 public:
  Port() = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  virtual ~Port() = default;
  // Reserves the base credits of one more endpoint; kResourceExhausted when the pool cannot.
  virtual Result<std::unique_ptr<PendingEndpoint>> prepare() = 0;
  [[nodiscard]] virtual std::size_t endpoints() const = 0;
  [[nodiscard]] virtual std::uint32_t free_slots() const = 0;  // not promised to any peer
  [[nodiscard]] virtual PortCounters counters() const = 0;
};

// Purpose of a registration. kOnce: one peer reads the memory one time, so the provider prepares
// nothing for further reads.
enum class Use : std::uint8_t { kLasting, kOnce };

// The registration domain of one fabric in a process. Thread: any. Lifetime: outlives its regions
// and ports.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;
  // Registers memory of the caller, which stays alive until the region is closed. kInvalidArgument
  // for a null or empty range, kUnimplemented for a kind that this build cannot move.
  virtual Result<DeviceRegion> register_memory(void* data, std::size_t bytes, Rights rights,
                                               MemoryKind kind = MemoryKind::kHost,
                                               Use use = Use::kLasting) = 0;
  // Makes page-aligned zeroed memory in a memfd, whose pages all exist, and registers it. With huge
  // pages: kResourceExhausted says how many the pool lacks, kUnimplemented that the kernel has
  // none. The region has the requested length, and no other region shares its last page.
  virtual Result<DeviceRegion> allocate(std::size_t bytes, Rights rights, MemoryKind kind = MemoryKind::kHost,
                                        Pages pages = Pages::kDefault) = 0;
  virtual Result<std::unique_ptr<Port>> open_port(Loop& loop, PortOptions options = {}) = 0;
  // Returns OK, or why no connection can be made over the device now. A device may become usable
  // again.
  [[nodiscard]] virtual Status usable() const { return {}; }
  // Returns what a peer needs to tell whether it can reach this device now: an offer's hint
  // (transport/choice.h). At most limits::kHintBytes; empty if every peer can reach it.
  [[nodiscard]] virtual ByteVector hint() const { return {}; }
  // Returns whether registered memory keeps the pages that it had when it was registered. If so,
  // and if the owner gives pages back during the registration (MADV_REMOVE, MADV_DONTNEED), peers
  // go on reading and writing the old pages.
  [[nodiscard]] virtual bool pins() const { return false; }
  // Returns the adapter's own counters that are not zero, and those of receivers that were not
  // ready; empty if there is no adapter or its counters cannot be read. Reads files: not for the
  // loop.
  [[nodiscard]] virtual std::vector<DeviceCounter> counters() const { return {}; }
};

// What the layers above need to know of a provider in order to choose among several.
struct ProviderTraits {
  // "auto" uses the provider where it works. If false, an agent must name it.
  bool automatic = false;
  // The provider reaches every peer. "auto" fails where such a provider does not work.
  bool reaches_everyone = false;
  // The provider reaches peers on the same machine only.
  bool same_machine_only = false;
  // An endpoint takes long to prepare, so an initiator prepares it only once the acceptor has
  // chosen.
  bool slow_to_prepare = false;
  // The device may refuse memory that other devices take, because of its hardware or of limits of
  // the machine. An agent that has other devices uses such memory without this one.
  bool may_refuse_memory = false;
  // Why two peers use the provider, for people: "same host and user". Empty: no reason is needed.
  std::string_view fits = {};
  // Compares the hints (Device::hint()) of two peers. Returns OK, or why the peers cannot reach
  // each other. `theirs` may hold any bytes. Null: all peers can.
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
  // Valid for the whole life of the process.
  [[nodiscard]] virtual const ProviderTraits& traits() const { return kPlainTraits; }
  // Returns OK, or why the provider cannot work on this machine.
  [[nodiscard]] virtual Status available() const = 0;
  virtual Result<std::unique_ptr<Device>> open_device() = 0;
};

struct ProviderEntry {
  std::string_view name;
  std::function<std::unique_ptr<Provider>()> make;
};
using ProviderTable = std::span<const ProviderEntry>;
// Returns the providers of this build, in the order in which "auto" prefers them. This table is
// the only place that names all providers (provider_table.cc).
ProviderTable provider_table();

// Makes a provider of `table`. Errors: kNotFound, with the names of the table.
Result<std::unique_ptr<Provider>> make_provider(std::string_view name,
                                                ProviderTable table = provider_table());
std::vector<std::string> provider_names();

}  // namespace slime::transport
