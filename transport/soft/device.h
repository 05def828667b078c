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

// A wire that is being made: the fabric's part of a PendingEndpoint. Thread: the port's loop.
class PendingWire {
 public:
  PendingWire() = default;
  PendingWire(const PendingWire&) = delete;
  PendingWire& operator=(const PendingWire&) = delete;
  virtual ~PendingWire() = default;
  // Returns what the peer must know beside the engine's parameters.
  [[nodiscard]] virtual ByteVector parameters() const = 0;
  // Once.
  virtual Result<std::unique_ptr<Wire>> finish(Bytes peer_parameters, UniqueFd socket,
                                               const Introduction& who) = 0;
};

// Makes the wires of one port, and is destroyed with the port. Thread: the port's loop.
using WireFactory = UniqueFunction<Result<std::unique_ptr<PendingWire>>()>;
// Makes the factory of one new port. Thread: its loop.
using WireFactoryMaker = UniqueFunction<Result<WireFactory>(Loop&, const PortOptions&)>;
// Makes wires of a fabric that sends no parameters of its own.
using MakeWire = UniqueFunction<Result<std::unique_ptr<Wire>>(Loop&, UniqueFd, const Introduction&)>;
WireFactory plain_wires(Loop& loop, MakeWire make);

// State that a device, its regions and its ports share. Thread: any.
class DeviceState {
 public:
  RegionTable regions;

  void add_port(const std::shared_ptr<PortState>& port);
  [[nodiscard]] std::vector<std::shared_ptr<PortState>> ports();

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<PortState>> ports_ SLIME_GUARDED_BY(mutex_);
};

// A registration: the provider's side of a DeviceRegion.
class SoftRegion final : public DeviceRegion::Impl {
 public:
  // `owned` is the memory that allocate() made; empty for memory of the caller.
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

// The device of each provider that runs the software engine over a wire of its own.
class SoftDevice final : public Device {
 public:
  // `hint`: what hint() answers.
  explicit SoftDevice(WireFactoryMaker make_factory, ByteVector hint = {})
      : state_(std::make_shared<DeviceState>()),
        hint_(std::move(hint)),
        make_factory_(std::move(make_factory)) {}

  Result<DeviceRegion> register_memory(void* data, std::size_t bytes, Rights rights, MemoryKind kind,
                                       Use use) override;
  Result<DeviceRegion> allocate(std::size_t bytes, Rights rights, MemoryKind kind, Pages pages) override;
  Result<std::unique_ptr<Port>> open_port(Loop& loop, PortOptions options) override;
  [[nodiscard]] ByteVector hint() const override { return hint_; }

 private:
  Result<DeviceRegion> add(std::byte* data, std::size_t bytes, Rights rights, OwnedMemory owned, Use use);

  const std::shared_ptr<DeviceState> state_;
  const ByteVector hint_;
  Mutex mutex_;
  WireFactoryMaker make_factory_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::transport::soft
