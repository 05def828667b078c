#include "ctrl/api/tokens.h"

#include <string>
#include <utility>
#include <vector>

#include "base/str.h"
#include "ctrl/http/replies.h"
#include "ctrl/limits.h"
#include "ctrl/wire/json_bodies.h"

namespace slime::ctrl {
namespace {

TokenInfo to_info(const TokenRecord& token) {
  return {token.id, token.role, token.scope, token.note, token.created_unix_s, token.expires_unix_s, {}};
}

}  // namespace

ApiReply TokenRoutes::create(const Call& call) {
  Query& query = call.query;
  Result<TokenRequest> request = wire::decode_token_request(call.request.body);
  if (!request) return reply_error(request.error());
  query.permit(Role::kAdmin, request->scope);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  // Refuses a sender without a token: the first token makes tokens necessary for every request, so
  // any client could lock out all others.
  if (query.principal().token_id.empty())
    return reply_error(
        Status(Code::kPermissionDenied, "the first token is not made over HTTP"),
        "make it on the server's disk, while nothing has the store open: nanoctrl token create "
        "--store STORE --role admin --scope '*'; or start it with --admin-token-file FILE "
        "(nanoctrl token new prints a token for it)");
  const NewToken token = make_token(request->role, request->scope, std::move(request->note),
                                    context_.options().unix_time_s(), request->expires_in_s);
  Outcome out = context_.submit(PutTokenCommand{token.record, !context_.access().admin_tokens()->empty()});
  if (!out.status.ok()) return reply_error(std::move(out.status));
  changes_("a token was made", {{"token_id", token.record.id},
                                {"role", std::string(role_name(token.record.role))},
                                {"scope", token.record.scope},
                                {"by_token_id", query.principal().token_id}});
  TokenInfo info = to_info(token.record);
  info.token = token.text;
  return reply_ok(wire::encode(info));
}

ApiReply TokenRoutes::list(const Call& call) {
  Query& query = call.query;
  const Principal& principal = query.principal();
  query.permit(Role::kAdmin, principal.scope);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  std::vector<TokenInfo> tokens;
  context_.engine().look([&](const Registry& registry) {
    for (const auto& [id, token] : registry.tokens()) {
      if (principal.everywhere() || token.scope == principal.scope) tokens.push_back(to_info(token));
    }
  });
  return reply_ok(wire::encode(tokens));
}

ApiReply TokenRoutes::revoke(const Call& call) {
  Query& query = call.query;
  const std::string& id = call.path[2];
  // Tokens of other scopes count as missing: an administrator of one scope must not learn their
  // ids.
  const Principal& principal = query.principal();
  query.permit(Role::kAdmin, principal.scope);
  if (Status status = query.finish(); !status.ok()) return reply_error(std::move(status));
  const bool visible = context_.engine().look([&](const Registry& registry) {
    const auto it = registry.tokens().find(id);
    return it != registry.tokens().end() && (principal.everywhere() || it->second.scope == principal.scope);
  });
  if (!visible)
    return reply_error(
        Status(Code::kNotFound, str("there is no token '", id.substr(0, limits::kNameBytes), "'")),
        "nanoctrl token list shows them");
  Outcome out = context_.submit(RevokeTokenCommand{id, !context_.access().admin_tokens()->empty()});
  if (!out.status.ok()) return reply_error(std::move(out.status));
  changes_("a token was revoked", {{"token_id", id}, {"by_token_id", principal.token_id}});
  return reply_ok("{}");
}

}  // namespace slime::ctrl
