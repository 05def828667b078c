// Data from another NIXL plugin: connection info, registration data, notifications. Decoded data is
// encoded to the same bytes; anything else returns an error with a text.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "integrations/nixl/inbox.h"
#include "integrations/nixl/limits.h"
#include "integrations/nixl/plugin_data.h"

namespace {

using namespace slime;

void connection_info(std::string_view input) {
  const auto info = nixl::ConnInfo::decode(input);
  if (!info) {
    SLIME_CHECK(info.status().code() == Code::kCorrupt || info.status().code() == Code::kUnimplemented);
    SLIME_CHECK(!info.status().text().empty());
    return;
  }
  SLIME_CHECK(!info->address.empty() && info->address.size() <= nixl::limits::kAddressBytes);
  SLIME_CHECK(info->encode() == input);
  SLIME_CHECK(info->region_name(1) != info->region_name(2));
}

void registration(std::string_view input) {
  const auto number = nixl::decode_registration(input);
  if (number)
    SLIME_CHECK(nixl::encode_registration(*number) == input);
  else
    SLIME_CHECK(number.status().code() == Code::kCorrupt);
}

void notification(Bytes input) {
  const auto got = nixl::decode_notification(input);
  nixl::Inbox inbox;
  SLIME_CHECK(inbox.put(input).ok() == got.has_value());
  nixl::Inbox::List list;
  inbox.take(list);
  if (!got) {
    SLIME_CHECK(got.status().code() == Code::kCorrupt && list.empty());
    return;
  }
  SLIME_CHECK(got->sender.size() <= nixl::limits::kAgentNameBytes);
  SLIME_CHECK(std::ranges::equal(nixl::encode_notification(got->sender, got->message), input));
  SLIME_CHECK(list.size() == 1 && list[0].first == got->sender && list[0].second == got->message);
}

}  // namespace

// Each input is decoded as all three.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes input = std::as_bytes(std::span(data, size));
  connection_info(as_text(input));
  registration(as_text(input));
  notification(input);
  return 0;
}
