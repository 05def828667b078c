#include "tests/agent/agents.h"

#include <algorithm>
#include <cstdlib>

namespace slime::test {

int from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

int scaled(int count) { return std::max(1, count * from_environment("SLIME_TEST_SCALE", 100) / 100); }

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
