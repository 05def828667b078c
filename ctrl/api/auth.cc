#include "ctrl/api/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <array>
#include <chrono>
#include <utility>

#include "base/random.h"
#include "base/str.h"
#include "ctrl/limits.h"

namespace slime::ctrl {
namespace {

constexpr std::string_view kPrefix = "slime-";
constexpr std::size_t kSecretDigits = 64;
constexpr std::size_t kTextBytes = kPrefix.size() + limits::kTokenIdDigits + 1 + kSecretDigits;

std::string random_hex(std::size_t digits) {
  std::array<std::byte, kSecretDigits / 2> bytes{};
  random_bytes(bytes);
  return to_hex(std::span(bytes).first(digits / 2));
}

std::string sha256(Bytes bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> out{};
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), out.data());
  return to_hex(std::as_bytes(std::span(out)));
}
std::string sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

struct Parts {
  std::string_view id, secret;
};
std::optional<Parts> parse(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (text.size() != kTextBytes || !text.starts_with(kPrefix)) return std::nullopt;
  const std::string_view id = text.substr(kPrefix.size(), limits::kTokenIdDigits);
  const std::string_view secret = text.substr(kTextBytes - kSecretDigits);
  if (text[kPrefix.size() + limits::kTokenIdDigits] != '-' || id.find_first_not_of(kHex) != id.npos ||
      secret.find_first_not_of(kHex) != secret.npos)
    return std::nullopt;
  return Parts{id, secret};
}

}  // namespace

std::uint64_t unix_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

Status Principal::may(Role needed, std::string_view in_scope) const {
  if (!everywhere() && in_scope != scope)
    return {Code::kPermissionDenied,
            in_scope == "*"
                ? str("the token is of scope '", scope, "'; this needs one of all scopes")
                : str("the token is of scope '", scope, "', not of '", in_scope, "'; use one that is")};
  if (role < needed)
    return {Code::kPermissionDenied,
            str("the token's role is ", role_name(role), "; this needs one of role ", role_name(needed))};
  return {};
}

NewToken make_token(Role role, std::string scope, std::string note, std::uint64_t now_unix_s,
                    std::uint64_t expires_in_s) {
  NewToken out;
  const std::string secret = random_hex(kSecretDigits);
  out.record.id = random_hex(limits::kTokenIdDigits);
  out.record.role = role;
  out.record.scope = std::move(scope);
  out.record.note = std::move(note);
  out.record.secret_sha256 = sha256(secret);
  out.record.created_unix_s = now_unix_s;
  out.record.expires_unix_s = expires_in_s == 0 ? 0 : now_unix_s + expires_in_s;
  out.text = str(kPrefix, out.record.id, "-", secret);
  return out;
}

std::string session_sha256(const Secret& session) { return sha256(session.bytes()); }

Result<TokenRecord> record_of(std::string_view text, Role role, std::string scope) {
  const std::optional<Parts> parts = parse(text);
  if (!parts)
    return Status(
        Code::kInvalidArgument,
        "this is not a token: slime-, 16 hexadecimal digits, -, 64 hexadecimal digits (nanoctrl token new "
        "prints one)");
  TokenRecord out;
  out.id = std::string(parts->id);
  out.role = role;
  out.scope = std::move(scope);
  out.secret_sha256 = sha256(parts->secret);
  return out;
}

Result<Principal> authenticate(const Tokens& tokens, std::string_view authorization,
                               std::uint64_t now_unix_s) {
  constexpr std::string_view kBearer = "Bearer ";
  if (authorization.empty()) return Status(Code::kUnauthenticated, "this nanoctrl requires a token");
  std::optional<Parts> parts;
  if (authorization.starts_with(kBearer)) parts = parse(authorization.substr(kBearer.size()));
  if (!parts)
    return Status(Code::kUnauthenticated,
                  "what was sent is not a token of nanoctrl (a token looks like slime-ID-SECRET)");
  const std::string hash = sha256(parts->secret);
  const auto it = tokens.find(parts->id);
  // Compares a hash also for an unknown token id, so that the time taken does not reveal which ids
  // exist.
  const std::string& expected = it == tokens.end() ? hash : it->second.secret_sha256;
  const bool same =
      expected.size() == hash.size() && ::CRYPTO_memcmp(expected.data(), hash.data(), hash.size()) == 0;
  if (!same || it == tokens.end())
    return Status(Code::kUnauthenticated, "the token is unknown here, or was revoked");
  const TokenRecord& token = it->second;
  if (token.expires_unix_s != 0 && now_unix_s >= token.expires_unix_s)
    return Status(Code::kUnauthenticated, str("the token ", token.id, " has expired"));
  return Principal{token.id, token.role, token.scope};
}

}  // namespace slime::ctrl
