#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ctrl/types.h"

// Who asks, and what they may. A token's text is "slime-ID-SECRET": 16 and 64 hexadecimal digits. The secret
// has 256 random bits, so its plain SHA-256 is all that is kept of it.
namespace slime::ctrl {

// Seconds since 1970: when tokens are made and expire.
std::uint64_t unix_time_s();

struct Principal {
  std::string token_id;  // empty: nobody has to say who they are
  Role role = Role::kAdmin;
  std::string scope = "*";

  [[nodiscard]] bool everywhere() const { return scope == "*"; }
  // OK, or kPermissionDenied with what is missing.
  [[nodiscard]] Status may(Role needed, std::string_view in_scope) const;
};

struct NewToken {
  std::string text;  // what the bearer sends
  TokenRecord record;
};
NewToken make_token(Role role, std::string scope, std::string note, std::uint64_t now_unix_s,
                    std::uint64_t expires_in_s);
// The record of a token that somebody else made, such as the one of --admin-token-file. kInvalidArgument when
// the text is none.
Result<TokenRecord> record_of(std::string_view text, Role role, std::string scope);

// What is kept of a session, as text. It has 256 random bits too.
std::string session_sha256(const Secret& session);

using Tokens = std::map<std::string, TokenRecord, std::less<>>;
// The bearer of an Authorization header. kUnauthenticated: there is none, or not that one. The time that it
// takes does not depend on what is wrong with the secret.
Result<Principal> authenticate(const Tokens& tokens, std::string_view authorization,
                               std::uint64_t now_unix_s);

}  // namespace slime::ctrl
