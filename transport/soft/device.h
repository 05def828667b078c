#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "transport/owned_memory.h"
#include "transport/provider.h"
#include "transport/soft/regions.h"
#include "transport/wire.h"

namespace slime::transport::soft {

class PortState;

// A wire that is being made: the part of a PendingEndpoint that depends on the fabric. Thread: the
// port's loop.
class PendingWire {
 public:
  PendingWire() = default;
  PendingWire(const PendingWire&) = delete;
  PendingWire& operator=(const PendingWire&) = delete;
  virtual ~PendingWire() = default;
  // Returns the fabric's own parameters for the peer; the engine sends its parameters besides.
  [[nodiscard]] virtual ByteVector parameters() const = 0;
  // Once.
  virtual Result<std::unique_ptr<Wire>> finish(Bytes peer_parameters, UniqueFd socket,
                                               const Introduction& who) = 0;
};

// Function that makes the wires of one port. It is destroyed with the port. Thread: the port's
// loop.
using WireFactory = UniqueFunction<Result<std::unique_ptr<PendingWire>>()>;
// Function that makes the WireFactory of a new port. Thread: the port's loop.
using WireFactoryMaker = UniqueFunction<Result<WireFactory>(Loop&, const PortOptions&)>;
// Function that makes a wire of a fabric that needs no parameters of its own. plain_wires() turns
// it into a WireFactory.
using MakeWire = UniqueFunction<Result<std::unique_ptr<Wire>>(Loop&, UniqueFd, const Introduction&)>;
WireFactory plain_wires(Loop& loop, MakeWire make);

// State that a device shares with its regions and ports. Thread: any.
class DeviceState {
 public:
  RegionTable regions;

  void add_port(const std::shared_ptr<PortState>& port);
  [[nodiscard]] std::vector<std::shared_ptr<PortState>> ports();

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<PortState>> ports_ SLIME_GUARDED_BY(mutex_);
};

// The software engine's implementation of a DeviceRegion.
class SoftRegion final : public DeviceRegion::Impl {
 public:
  // `owned`: the memory of the region if allocate() made it; empty if the caller owns the memory.
  SoftRegion(std::shared_ptr<DeviceState> device, std::shared_ptr<RegionRecord> registration, Handle id,
             OwnedMemory owned);
  ~SoftRegion() override;

  Status close(Nanos bound) override;
  RegionDescriptor describe() const override;
  int memory_fd() const override { return owned_.fd(); }

  [[nodiscard]] RegionRecord& record() const { return *record_; }
  [[nodiscard]] const std::shared_ptr<RegionRecord>& shared_record() const { return record_; }

 private:
  bool take_back(TimePoint by);

  const std::shared_ptr<DeviceState> device_;
  const std::shared_ptr<RegionRecord> record_;
  const Handle id_;
  OwnedMemory owned_;
  bool closed_ = false;
};

// The Device of all providers that run the software engine over a wire of their own.
class SoftDevice final : public Device {
 public:
  // `hint`: what hint() answers. `prefers_own`: what prefers_own_memory() answers.
  explicit SoftDevice(WireFactoryMaker make_factory, ByteVector hint = {}, bool prefers_own = false)
      : state_(std::make_shared<DeviceState>()),
        hint_(std::move(hint)),
        prefers_own_(prefers_own),
        make_factory_(std::move(make_factory)) {}

  Result<DeviceRegion> register_memory(void* data, std::size_t bytes, Rights rights, MemoryKind kind,
                                       Use use) override;
  Result<DeviceRegion> allocate(std::size_t bytes, Rights rights, MemoryKind kind, Pages pages) override;
  Result<std::unique_ptr<Port>> open_port(Loop& loop, PortOptions options) override;
  [[nodiscard]] ByteVector hint() const override { return hint_; }
  [[nodiscard]] bool prefers_own_memory() const override { return prefers_own_; }

 private:
  Result<DeviceRegion> add(std::byte* data, std::size_t bytes, Rights rights, OwnedMemory owned, Use use);

  const std::shared_ptr<DeviceState> state_;
  const ByteVector hint_;
  const bool prefers_own_;
  Mutex mutex_;
  WireFactoryMaker make_factory_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::transport::soft
