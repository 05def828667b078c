#include "rpc/text.h"

#include "base/str.h"
#include "rpc/limits.h"

namespace slime::rpc {
namespace {

// Length of the UTF-8 sequence at the start of `text`; 0 when it is none (overlong forms and surrogates
// included).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool out_of_range = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return overlong || out_of_range ? 0 : length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

Status validate_name(std::string_view what, std::string_view name) {
  const auto bad = [&](const auto&... why) {
    return Status(Code::kInvalidArgument, str("the name of a ", what, why...));
  };
  if (name.empty()) return bad(" is empty");
  if (name.size() > limits::kNameBytes) return bad(" is longer than ", limits::kNameBytes, " bytes");
  for (std::string_view rest = name; !rest.empty();) {
    const std::size_t length = utf8_length(rest);
    if (length == 0) return bad(" is not UTF-8");
    if (length == 1 && (static_cast<unsigned char>(rest[0]) < 0x20 || rest[0] == 0x7f))
      return bad(" has a control character");
    rest.remove_prefix(length);
  }
  return {};
}

}  // namespace slime::rpc
