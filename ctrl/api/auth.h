#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ctrl/types.h"

// Authentication by token. A token's text is "slime-ID-SECRET": 16 and 64 hexadecimal digits. The
// secret has 256 random bits, so nanoctrl keeps only its plain SHA-256.
namespace slime::ctrl {

// Seconds since 1970: the time base of token creation and expiry.
std::uint64_t unix_time_s();

struct Principal {
  std::string token_id;  // empty: no token was needed
  Role role = Role::kAdmin;
  std::string scope = "*";

  [[nodiscard]] bool everywhere() const { return scope == "*"; }
  // OK, or kPermissionDenied with the missing role or scope.
  [[nodiscard]] Status may(Role needed, std::string_view in_scope) const;
};

struct NewToken {
  std::string text;  // what the bearer sends
  TokenRecord record;
};
NewToken make_token(Role role, std::string scope, std::string note, std::uint64_t now_unix_s,
                    std::uint64_t expires_in_s);
// Returns the record of a token made elsewhere, such as that of --admin-token-file.
// kInvalidArgument when the text is not a token.
Result<TokenRecord> record_of(std::string_view text, Role role, std::string scope);

// The hash of a session that is stored. A session also has 256 random bits.
std::string session_sha256(const Secret& session);

using Tokens = std::map<std::string, TokenRecord, std::less<>>;
// Returns the principal of an Authorization header. kUnauthenticated: no token, or an unknown one.
// Takes the same time whatever is wrong with the secret.
Result<Principal> authenticate(const Tokens& tokens, std::string_view authorization,
                               std::uint64_t now_unix_s);

}  // namespace slime::ctrl
