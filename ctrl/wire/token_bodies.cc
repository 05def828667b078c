#include <utility>

#include "ctrl/wire/json_bodies.h"
#include "ctrl/wire/json_fields.h"

namespace slime::ctrl::wire {
namespace {

using Mode = Fields::Mode;

Role read_role(Fields& in) {
  const std::optional<Role> role = parse_role(in.text("role", true));
  if (!role) in.problem(str("\"", in.where(), "role\" is not read, join or admin"));
  return role.value_or(Role::kRead);
}

Json to_json(const TokenInfo& token) {
  Json out = {{"id", token.id},
              {"role", role_name(token.role)},
              {"scope", token.scope},
              {"note", token.note},
              {"created_unix_s", token.created_unix_s},
              {"expires_unix_s", token.expires_unix_s}};
  if (!token.token.empty()) out["token"] = token.token;
  return out;
}

TokenInfo read_token(Fields& in) {
  return {in.text("id", true),
          read_role(in),
          in.text("scope", true),
          in.text("note", false),
          in.integer("created_unix_s", true),
          in.integer("expires_unix_s", true),
          in.text("token", false)};
}

}  // namespace

std::string encode(const TokenRequest& request) {
  return dump({{"role", role_name(request.role)},
               {"scope", request.scope},
               {"note", request.note},
               {"expires_in_s", request.expires_in_s}});
}
Result<TokenRequest> decode_token_request(std::string_view body) {
  const Result<Json> json = parse_json(body, Code::kInvalidArgument, "the body");
  if (!json) return json.error();
  Fields in(*json, Mode::kStrict);
  TokenRequest out{read_role(in), in.text("scope", true), in.text("note", false),
                   in.integer("expires_in_s", false)};
  if (out.expires_in_s > limits::kTokenSecondsMax)
    in.problem(str("\"expires_in_s\" is more than ", limits::kTokenSecondsMax));
  SLIME_TRY(in.finish());
  return out;
}

std::string encode(const TokenInfo& token) { return dump(to_json(token)); }
Result<TokenInfo> decode_token_info(std::string_view body) {
  const Result<Json> json = parse_json(body, Code::kCorrupt, "the reply");
  if (!json) return json.error();
  Fields in(*json, Mode::kLenient);
  TokenInfo out = read_token(in);
  SLIME_TRY(in.finish());
  return out;
}

std::string encode(const std::vector<TokenInfo>& tokens) {
  Json list = Json::array();
  for (const TokenInfo& token : tokens) list.push_back(to_json(token));
  return dump({{"tokens", std::move(list)}});
}
Result<std::vector<TokenInfo>> decode_tokens(std::string_view body) {
  const Result<Json> json = parse_json(body, Code::kCorrupt, "the reply");
  if (!json) return json.error();
  Fields in(*json, Mode::kLenient);
  std::vector<TokenInfo> out;
  if (const Json* list = in.array("tokens", true)) {
    for (const Json& item : *list) {
      Fields token(item, Mode::kLenient, str("tokens[", out.size(), "]."));
      out.push_back(read_token(token));
      SLIME_TRY(token.finish());
    }
  }
  SLIME_TRY(in.finish());
  return out;
}

std::string encode_record(const TokenRecord& token) {
  return dump({{"id", token.id},
               {"role", role_name(token.role)},
               {"scope", token.scope},
               {"note", token.note},
               {"secret_sha256", token.secret_sha256},
               {"created_unix_s", token.created_unix_s},
               {"expires_unix_s", token.expires_unix_s}});
}
Result<TokenRecord> decode_token(std::string_view record) {
  const Result<Json> json = parse_json(record, Code::kCorrupt, "the record");
  if (!json) return json.error();
  Fields in(*json, Mode::kLenient);
  TokenRecord out;
  out.id = in.text("id", true);
  out.role = read_role(in);
  out.scope = in.text("scope", true);
  out.note = in.text("note", false);
  out.secret_sha256 = in.text("secret_sha256", true);
  out.created_unix_s = in.integer("created_unix_s", true);
  out.expires_unix_s = in.integer("expires_unix_s", true);
  SLIME_TRY(in.finish());
  return out;
}

}  // namespace slime::ctrl::wire
