#pragma once

#include <doctest/doctest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/transport/verbs/fake_fabric.h"
#include "transport/verbs/device.h"
#include "transport/verbs/regions.h"

namespace slime::transport::testing {

// One recorded registration.
struct Registered {
  std::string call;
  std::uint64_t address = 0;  // device address of the first byte
  std::uint64_t bytes = 0;
  unsigned access = 0;
  int fd = -1;
  std::uint64_t offset = 0;  // within the descriptor
  ibv_mr* mr = nullptr;
};

// A device on its own fabric that records every registration, and fails as the test says. One at a
// time in a process.
class WatchedDevice {
 public:
  explicit WatchedDevice(FakeOptions options = FakeOptions::roce(1), verbs::Options verbs_options = {},
                         const verbs::DmabufExporter& exporter = verbs::cuda_dmabuf_exporter())
      : fabric(std::move(options)), functions_(watch(fabric.functions())) {
    self_ = this;
    auto context = verbs::Context::open(functions_, std::move(verbs_options));
    REQUIRE_MESSAGE(context.has_value(), context.status().text());
    state = std::make_shared<verbs::DeviceState>(std::move(*context), exporter);
    device = std::make_unique<verbs::VerbsDevice>(state);
  }
  ~WatchedDevice() {
    device.reset();
    state.reset();
    FakeFabric::await_ends();  // ports may end on other threads, which use the table below
    self_ = nullptr;
  }
  WatchedDevice(const WatchedDevice&) = delete;
  WatchedDevice& operator=(const WatchedDevice&) = delete;

  DeviceRegion add(void* data, std::size_t bytes, Rights rights = Rights::kReadWrite,
                   MemoryKind kind = MemoryKind::kHost) {
    auto region = device->register_memory(data, bytes, rights, kind);
    REQUIRE_MESSAGE(region.has_value(), region.status().text());
    return std::move(*region);
  }
  DeviceRegion allocate(std::size_t bytes, Rights rights = Rights::kReadWrite) {
    auto region = device->allocate(bytes, rights);
    REQUIRE_MESSAGE(region.has_value(), region.status().text());
    return std::move(*region);
  }
  static verbs::VerbsRegion& impl(const DeviceRegion& region) {
    return dynamic_cast<verbs::VerbsRegion&>(*region.impl());
  }
  // Returns the registration with this key, live or not.
  [[nodiscard]] const Registered* with_remote_key(std::uint64_t rkey) const {
    for (const Registered& made : registered) {
      if (made.mr->rkey == rkey) return &made;
    }
    return nullptr;
  }
  [[nodiscard]] int alive() const { return fabric.objects().regions; }

  FakeFabric fabric;
  std::vector<Registered> registered;
  std::vector<std::string> events;  // "deregistered", "refused to deregister", and the test's own
  int iova2_error = 0;              // error of registrations with optional flags
  int plain_error = 0;              // error of registrations without them that ask for local write access
  int deregister_error = 0;
  int deregister_failures = 0;  // number of following deregistrations that fail

 private:
  static inline WatchedDevice* self_ = nullptr;

  static ibv_mr* note(Registered made) {
    if (made.mr != nullptr) self_->registered.push_back(made);
    return made.mr;
  }
  static ibv_mr* refuse(int error) {
    errno = error;
    return nullptr;
  }
  static const verbs::Functions& real() { return self_->fabric.functions(); }
  static verbs::Functions watch(verbs::Functions table) {
    table.reg_mr = [](ibv_pd* pd, void* address, std::size_t bytes, int access) -> ibv_mr* {
      if (self_->plain_error != 0 && (access & IBV_ACCESS_LOCAL_WRITE) != 0)
        return refuse(self_->plain_error);
      return note({"ibv_reg_mr", reinterpret_cast<std::uintptr_t>(address), bytes,
                   static_cast<unsigned>(access), -1, 0, real().reg_mr(pd, address, bytes, access)});
    };
    if (table.reg_mr_iova2 != nullptr) {
      table.reg_mr_iova2 = [](ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t iova,
                              unsigned access) -> ibv_mr* {
        if (self_->iova2_error != 0) return refuse(self_->iova2_error);
        CHECK(iova == reinterpret_cast<std::uintptr_t>(address));
        return note({"ibv_reg_mr_iova2", iova, bytes, access, -1, 0,
                     real().reg_mr_iova2(pd, address, bytes, iova, access)});
      };
    }
    if (table.reg_dmabuf_mr != nullptr) {
      table.reg_dmabuf_mr = [](ibv_pd* pd, std::uint64_t offset, std::size_t bytes, std::uint64_t iova,
                               int fd, int access) -> ibv_mr* {
        return note({"ibv_reg_dmabuf_mr", iova, bytes, static_cast<unsigned>(access), fd, offset,
                     real().reg_dmabuf_mr(pd, offset, bytes, iova, fd, access)});
      };
    }
    table.dereg_mr = [](ibv_mr* mr) {
      if (self_->deregister_failures > 0) {
        --self_->deregister_failures;
        self_->events.emplace_back("refused to deregister");
        return self_->deregister_error;
      }
      self_->events.emplace_back("deregistered");
      return real().dereg_mr(mr);
    };
    return table;
  }

  const verbs::Functions functions_;

 public:
  std::shared_ptr<verbs::DeviceState> state;
  std::unique_ptr<Device> device;
};

}  // namespace slime::transport::testing
