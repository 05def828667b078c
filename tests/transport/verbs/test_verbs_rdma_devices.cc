// devices() shows adapters to users.
#include <doctest/doctest.h>

#include "tests/transport/verbs/fake_fabric.h"
#include "transport/verbs/rdma_devices.h"

namespace slime::transport::testing::rdma_devices_test {
namespace {

std::vector<RdmaDevice> devices_of(FakeOptions options) {
  FakeFabric fabric(std::move(options));
  auto found = verbs::devices(fabric.functions());
  REQUIRE_MESSAGE(found.has_value(), found.status().to_string());
  return std::move(*found);
}

}  // namespace

TEST_CASE("users see adapters, ports and the GIDs that are set") {
  FakeOptions options = FakeOptions::roce(2);
  options.devices[1].ports[0].state = IBV_PORT_DOWN;
  const std::vector<RdmaDevice> found = devices_of(std::move(options));
  REQUIRE(found.size() == 2);
  CHECK(found[0].name == "fake0");
  CHECK(found[0].usable.ok());
  CHECK(found[0].pci_address.empty());
  REQUIRE(found[0].ports.size() == 1);
  const RdmaPort& port = found[0].ports[0];
  CHECK(port.port == 1);
  CHECK(port.state == "active");
  CHECK(port.link_layer == "Ethernet");
  CHECK(port.mtu == 1024);
  CHECK(port.max_mtu == 4096);
  REQUIRE(port.gids.size() == 4);
  CHECK(port.gids[2].type == "RoCE v1");
  CHECK(port.gids[3].index == 3);
  CHECK(port.gids[3].type == "RoCE v2");
  CHECK(port.gids[3].gid == "::ffff:10.9.0.1");
  CHECK(port.gids[3].interface == "lo");
  CHECK(port.gids[3].interface_up);
  CHECK(found[1].ports[0].state == "down");
}

TEST_CASE("users see the LID of an InfiniBand port") {
  const std::vector<RdmaDevice> found = devices_of(FakeOptions::infiniband(1));
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].ports.size() == 1);
  CHECK(found[0].ports[0].link_layer == "InfiniBand");
  CHECK(found[0].ports[0].lid == 1);
  CHECK(found[0].ports[0].gids.size() == 1);
  CHECK(found[0].ports[0].gids[0].type == "InfiniBand");
}

TEST_CASE("users see no adapters where there are none") { CHECK(devices_of({}).empty()); }

}  // namespace slime::transport::testing::rdma_devices_test
