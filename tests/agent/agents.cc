#include "tests/agent/agents.h"

namespace slime::test {

rpc::Service calculator() {
  rpc::Service service("calc");
  REQUIRE(service.add("add", [](std::int64_t a, std::int64_t b) { return a + b; }).ok());
  REQUIRE(service.add("echo", [](ByteVector bytes) { return bytes; }).ok());
  REQUIRE(service.add("caller", [](const rpc::CallInfo& info) { return info.peer; }).ok());
  REQUIRE(
      service
          .add("fail",
               [](std::string text) -> Result<std::int64_t> { return Status(Code::kPermissionDenied, text); })
          .ok());
  return service;
}

}  // namespace slime::test
