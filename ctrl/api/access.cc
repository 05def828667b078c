#include "ctrl/api/access.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "ctrl/limits.h"
#include "ctrl/wire/url.h"

namespace slime::ctrl {
namespace {

// Returns the host without its port, in lower case. `text` is the value of a Host header, or the
// part of an Origin after the scheme.
std::string host_of(std::string_view text) {
  const std::size_t bracket = text.starts_with('[') ? text.find(']') : std::string_view::npos;
  const std::size_t end = bracket == std::string_view::npos ? text.find(':') : bracket + 1;
  std::string_view host = text.substr(0, end);
  if (bracket != std::string_view::npos) host = host.substr(1, bracket - 1);
  std::string out(host);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

bool is_loopback_origin(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return is_loopback(host_of(origin.substr(scheme.size())));
  }
  return false;
}

std::shared_ptr<const Tokens> only(std::optional<TokenRecord> token) {
  Tokens out;
  if (token) {
    std::string id = token->id;
    out.emplace(std::move(id), std::move(*token));
  }
  return std::make_shared<const Tokens>(std::move(out));
}

}  // namespace

Access::Access(const ApiOptions& options, const Engine& engine)
    : options_(options),
      engine_(engine),
      admin_(only(options.admin_token)),
      rates_(options.requests_per_second_of_token, limits::kTokens) {}

Result<Principal> Access::identify(const ApiRequest& request) const {
  const std::uint64_t now = options_.unix_time_s();
  const std::shared_ptr<const Tokens> admin = admin_tokens();
  if (!admin->empty()) {
    if (Result<Principal> found = authenticate(*admin, request.authorization, now)) return found;
  }
  return engine_.look([&](const Registry& registry) -> Result<Principal> {
    return requires_token(registry) ? authenticate(registry.tokens(), request.authorization, now)
                                    : Principal{};
  });
}

Status Access::check_names(const ApiRequest& request, bool open) const {
  // A request without a client address comes from inside this process, so its names are not
  // checked.
  if (!options_.only_loopback_names || request.client.empty()) return {};
  const bool host = is_loopback(host_of(request.host));
  if (host && (request.origin.empty() || is_loopback_origin(request.origin))) return {};
  // Skips the check if requests need a token. Open routes only: on other routes, identify() has
  // already refused a request that lacks a required token.
  if (open && engine_.look([&](const Registry& registry) { return requires_token(registry); })) return {};
  if (request.host.empty()) return {Code::kInvalidArgument, "there is no Host header"};
  constexpr std::size_t kShown = 100;
  return {Code::kPermissionDenied,
          host ? str("a web page of ", request.origin.substr(0, kShown),
                     " asks, and this nanoctrl, which has no tokens, answers only pages of this machine")
               : str("'", request.host.substr(0, kShown),
                     "' is not a name of this machine, and this nanoctrl, which has no tokens, answers only "
                     "to localhost, 127.0.0.1 and [::1]")};
}

// Limits the request rate of one token, which many client addresses may share. The HTTP front
// limits the rate of each address.
Status Access::take_turn(const Principal& principal) {
  if (principal.token_id.empty()) return {};
  const MutexLock lock(rates_mutex_);
  if (rates_.take(principal.token_id, steady_clock().now())) return {};
  return {Code::kResourceExhausted, str("the token ", principal.token_id, " is used for too many requests")};
}

std::shared_ptr<const Tokens> Access::admin_tokens() const {
  const MutexLock lock(admin_mutex_);
  return admin_;
}

void Access::set_admin_token(TokenRecord token) {
  SLIME_CHECK(options_.admin_token.has_value());
  std::shared_ptr<const Tokens> made = only(std::move(token));
  const MutexLock lock(admin_mutex_);
  admin_.swap(made);
}

bool Access::requires_token(const Registry& registry) const {
  return options_.require_token || !admin_tokens()->empty() || !registry.tokens().empty();
}

}  // namespace slime::ctrl
