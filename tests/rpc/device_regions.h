#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "rpc/attachment.h"
#include "tests/transport/fixture.h"
#include "transport/memory.h"

namespace slime::rpc::testing {

// A region of a device, as an agent would give it.
class DeviceMemory final : public Registered {
 public:
  explicit DeviceMemory(transport::DeviceRegion region) : region_(std::move(region)) {}
  [[nodiscard]] MutableBytes bytes() const override { return region_.bytes(); }
  [[nodiscard]] Result<const transport::DeviceRegion*> on(const transport::Device&) const override {
    return &region_;
  }

 private:
  const transport::DeviceRegion region_;
};

inline std::shared_ptr<const DeviceMemory> allocate(transport::testing::Fixture& f, int side,
                                                    std::size_t size, transport::Rights rights) {
  auto region = f.device(side).allocate(size, rights);
  REQUIRE(region.has_value());
  return std::make_shared<const DeviceMemory>(std::move(*region));
}

}  // namespace slime::rpc::testing
