// The info of an endpoint, which a user carries from one process to another: any bytes are refused,
// or read as an info that is written and read again without a change.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "agent/endpoint.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto info = slime::EndpointInfo::parse(text);
  if (!info) return 0;
  const auto again = slime::EndpointInfo::parse(info->to_json());
  SLIME_CHECK(again.has_value());
  SLIME_CHECK(again->name == info->name && again->address == info->address &&
              again->instance == info->instance);
  return 0;
}
