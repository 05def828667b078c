#include <utility>

#include "ctrl/wire/body_parts.h"

namespace slime::ctrl::wire {

ScopeKeys read_keys(Fields& in) {
  ScopeKeys out = read_list<ScopeKey>(in, "keys", false, [](Fields& key) {
    ScopeKey one{key.integer("id", true), {}, key.integer("made_unix_s", true)};
    std::optional<Secret> secret = Secret::from_hex(key.text("key", true), limits::kScopeKeyBytes);
    if (!secret)
      key.problem(str("\"", key.where(), "key\" is not ", 2 * limits::kScopeKeyBytes, " hexadecimal digits"));
    if (secret) one.secret = std::move(*secret);
    return one;
  });
  if (Status valid = check_keys(out); !valid.ok()) in.problem(str("\"keys\": ", valid.text()));
  return out;
}

std::string encode_keys(const ScopeKeys& keys) { return dump({{"keys", to_json(keys)}}); }
Result<ScopeKeys> decode_keys(std::string_view record) {
  return decode<ScopeKeys>(record, Mode::kLenient, [](Fields& in) {
    in.array("keys", true);
    return read_keys(in);
  });
}

}  // namespace slime::ctrl::wire
