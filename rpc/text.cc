#include "rpc/text.h"

#include "base/str.h"
#include "base/utf8.h"
#include "rpc/limits.h"

namespace slime::rpc {
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
