#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "transport/owned_memory.h"
#include "transport/provider.h"
#include "transport/soft/regions.h"
#include "transport/wire.h"

namespace slime::transport::soft {

class PortState;

// Makes the wire of one new endpoint. Thread: the port's loop.
using WireFactory = UniqueFunction<Result<std::unique_ptr<Wire>>(Loop&, UniqueFd, const Introduction&)>;
// Makes the factory of one new port.
using WireFactoryMaker = UniqueFunction<WireFactory()>;

// What a device, its regions and its ports share. Thread: any.
class DeviceState {
 public:
  RegionTable regions;

  void add_port(const std::shared_ptr<PortState>& port);
  [[nodiscard]] std::vector<std::shared_ptr<PortState>> ports();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<PortState>> ports_;
};

// A registration: the provider's side of a MemoryRegion.
class SoftRegion final : public MemoryRegion::Impl {
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
  const std::shared_ptr<DeviceState> device_;
  const std::shared_ptr<RegionRecord> record_;
  const Handle id_;
  const OwnedMemory owned_;
  bool closed_ = false;
};

// The device of every provider that runs the software engine over a wire of its own.
class SoftDevice final : public Device {
 public:
  explicit SoftDevice(WireFactoryMaker make_factory)
      : state_(std::make_shared<DeviceState>()), make_factory_(std::move(make_factory)) {}

  Result<MemoryRegion> register_memory(void* data, std::size_t bytes, Rights rights,
                                       MemoryKind kind) override;
  Result<MemoryRegion> allocate(std::size_t bytes, Rights rights, MemoryKind kind) override;
  Result<std::unique_ptr<Port>> open_port(Loop& loop, PortOptions options) override;

 private:
  Result<MemoryRegion> add(std::byte* data, std::size_t bytes, Rights rights, OwnedMemory owned);

  const std::shared_ptr<DeviceState> state_;
  std::mutex mutex_;  // guards make_factory_
  WireFactoryMaker make_factory_;
};

}  // namespace slime::transport::soft
