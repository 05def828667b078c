// A peer that describes its services arbitrarily: `slime stubs` prints text without control
// characters.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/stub_text.h"
#include "rpc/codec.h"

namespace {

void check(const std::string& text) {
  for (const char c : text) SLIME_CHECK(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const slime::Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto services = slime::rpc::decode_value<std::vector<slime::rpc::ServiceInfo>>(bytes);
  if (!services) return 0;
  check(slime::cli::python_stubs(*services));
  check(slime::cli::cpp_stubs(*services, {}));
  return 0;
}
