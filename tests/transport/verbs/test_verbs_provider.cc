// The entry of the provider table.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/transport/verbs/fake_fabric.h"
#include "transport/loop.h"
#include "transport/provider.h"
#include "transport/verbs/options.h"
#include "transport/verbs/verbs_provider.h"

namespace slime::transport::testing {

TEST_CASE("verbs is one of the providers, and says why it does not work where it does not") {
  const std::vector<std::string> names = provider_names();
  CHECK(std::find(names.begin(), names.end(), "verbs") != names.end());
  auto provider = make_provider("verbs");
  REQUIRE(provider.has_value());
  CHECK((*provider)->name() == "verbs");
  const Status status = (*provider)->available();
  CHECK((*provider)->open_device().status().code() == status.code());
  if (!status.ok()) CHECK_FALSE(status.text().empty());
}

TEST_CASE("a wrong variable of the environment is an error with its name, not ignored") {
  REQUIRE(setenv("SLIME_VERBS_MTU", "9000", 1) == 0);
  auto provider = make_provider("verbs");
  REQUIRE(unsetenv("SLIME_VERBS_MTU") == 0);
  REQUIRE(provider.has_value());
  const Status status = (*provider)->available();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.text().find("SLIME_VERBS_MTU") != std::string::npos);
  CHECK((*provider)->open_device().status().text() == status.text());
}

TEST_CASE("a device of the provider registers memory and opens ports, and gives everything back") {
  FakeFabric fabric;
  auto provider = verbs::make_verbs_provider(fabric.functions(), {});
  CHECK(provider->available().ok());
  CHECK(fabric.objects() == FakeObjects{});
  {
    auto device = provider->open_device();
    REQUIRE_MESSAGE(device.has_value(), device.status().text());
    auto region = (*device)->allocate(4096, Rights::kReadWrite);
    REQUIRE(region.has_value());
    auto loop = Loop::create();
    REQUIRE(loop.has_value());
    auto port = (*device)->open_port(**loop);
    REQUIRE_MESSAGE(port.has_value(), port.status().text());
    CHECK(fabric.objects().completion_queues == 1);
  }
  fabric.await_ends();
  CHECK(fabric.objects() == FakeObjects{});
}

TEST_CASE("what is not there or not usable is said by available() and open_device() alike") {
  verbs::Options options;
  FakeOptions fabric_options = FakeOptions::roce(1);
  Code expected = Code::kUnavailable;
  SUBCASE("a device of another name") {
    options.device = "mlx5_7";
    expected = Code::kInvalidArgument;
  }
  SUBCASE("a port that is down") { fabric_options.devices[0].ports[0].state = IBV_PORT_DOWN; }
  SUBCASE("no device at all") { fabric_options.devices.clear(); }
  FakeFabric fabric(fabric_options);
  auto provider = verbs::make_verbs_provider(fabric.functions(), options);
  CHECK(provider->available().code() == expected);
  CHECK(provider->open_device().status().code() == expected);
}

}  // namespace slime::transport::testing
