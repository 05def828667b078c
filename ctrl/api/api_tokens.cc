#include <chrono>
#include <utility>

#include "ctrl/api/api_query.h"

// /v1/tokens: who may do what.
namespace slime::ctrl {
namespace {

TokenInfo to_info(const TokenRecord& token) {
  return {token.id, token.role, token.scope, token.note, token.created_unix_s, token.expires_unix_s, {}};
}

}  // namespace

std::uint64_t unix_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

ApiReply Api::create_token(Query& query, std::string_view body) {
  Result<TokenRequest> request = wire::decode_token_request(body);
  if (!request) return reply_error(request.error());
  query.permit(Role::kAdmin, request->scope);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  // Where nobody has to say who they are, whoever came first would lock all others out.
  if (query.principal().token_id.empty())
    return reply_error(
        Status(Code::kPermissionDenied, "the first token is not made over HTTP"),
        "make it on the server's disk, while nothing has the store open: nanoctrl token create "
        "--store STORE --role admin --scope '*'; or start it with --admin-token-file FILE "
        "(nanoctrl token new prints a token for it)");
  const NewToken token = make_token(request->role, request->scope, std::move(request->note),
                                    options_.unix_time_s(), request->expires_in_s);
  Outcome out = submit(PutTokenCommand{token.record, !admin()->empty()});
  if (!out.status.ok()) return reply_error(std::move(out.status));
  token_changes_("a token was made", {{"token_id", token.record.id},
                                      {"role", std::string(role_name(token.record.role))},
                                      {"scope", token.record.scope},
                                      {"by_token_id", query.principal().token_id}});
  TokenInfo info = to_info(token.record);
  info.token = token.text;
  return reply_ok(wire::encode(info));
}

ApiReply Api::list_tokens(Query& query) {
  const Principal& who = query.principal();
  query.permit(Role::kAdmin, who.scope);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  std::vector<TokenInfo> tokens;
  engine_->look([&](const Registry& registry) {
    for (const auto& [id, token] : registry.tokens()) {
      if (who.everywhere() || token.scope == who.scope) tokens.push_back(to_info(token));
    }
  });
  return reply_ok(wire::encode(tokens));
}

ApiReply Api::revoke_token(Query& query, const std::string& id) {
  // One of another scope is as unknown to a scope's administrator as one that never was.
  const Principal& who = query.principal();
  query.permit(Role::kAdmin, who.scope);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const bool visible = engine_->look([&](const Registry& registry) {
    const auto it = registry.tokens().find(id);
    return it != registry.tokens().end() && (who.everywhere() || it->second.scope == who.scope);
  });
  if (!visible)
    return reply_error(
        Status(Code::kNotFound, str("there is no token '", id.substr(0, limits::kNameBytes), "'")),
        "nanoctrl token list shows them");
  Outcome out = submit(RevokeTokenCommand{id, !admin()->empty()});
  if (!out.status.ok()) return reply_error(std::move(out.status));
  token_changes_("a token was revoked", {{"token_id", id}, {"by_token_id", who.token_id}});
  return reply_ok("{}");
}

}  // namespace slime::ctrl
