#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ctrl/types.h"

// Authenticates requests by token. The text of a token is "slime-ID-SECRET": ID has 16 hexadecimal
// digits, SECRET has 64. A secret has 256 random bits, so a plain SHA-256 is enough to store it.
namespace slime::ctrl {

// Returns the current time in seconds since 1970, used for the creation and expiry of tokens.
std::uint64_t unix_time_s();

struct Principal {
  std::string token_id;  // empty: no token was needed
  Role role = Role::kAdmin;
  std::string scope = "*";

  [[nodiscard]] bool everywhere() const { return scope == "*"; }
  // Checks that this principal has the role `needed` in the scope. kPermissionDenied names what is
  // missing.
  [[nodiscard]] Status may(Role needed, std::string_view in_scope) const;
};

struct NewToken {
  std::string text;  // text that the bearer sends
  TokenRecord record;
};
NewToken make_token(Role role, std::string scope, std::string note, std::uint64_t now_unix_s,
                    std::uint64_t expires_in_s);
// Returns the record of an existing token, given the token's text, such as that in
// --admin-token-file. kInvalidArgument when the text is not a token.
Result<TokenRecord> record_of(std::string_view text, Role role, std::string scope);

// Returns the hash of a session, which nanoctrl stores instead of the session. A session has 256
// random bits.
std::string session_sha256(const Secret& session);

using Tokens = std::map<std::string, TokenRecord, std::less<>>;
// Returns the principal of the token in an Authorization header. kUnauthenticated if the token is
// missing, unknown or expired. The time taken does not depend on the secret.
Result<Principal> authenticate(const Tokens& tokens, std::string_view authorization,
                               std::uint64_t now_unix_s);

}  // namespace slime::ctrl
