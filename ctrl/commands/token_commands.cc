#include "ctrl/commands/token_commands.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/command_line.h"
#include "base/program.h"
#include "base/str.h"
#include "ctrl/api/auth.h"
#include "ctrl/client.h"
#include "ctrl/server.h"
#include "ctrl/store/engine.h"
#include "ctrl/wire/json_bodies.h"

namespace slime::ctrl {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRoles = "read: read lists; join: also register peers; admin: also manage tokens";

std::string date(std::uint64_t unix_s) {
  if (unix_s == 0) return "-";
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&time, &parts) == nullptr) return std::to_string(unix_s);
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%MZ", &parts);
  return text.data();
}

// Uses the same JSON as nanoctrl's replies.
Json to_json(const TokenInfo& token) { return Json::parse(wire::encode(token)); }

std::string line(const TokenInfo& token) {
  return str(token.id, "  ", role_name(token.role), "  ", token.scope, "  made ", date(token.created_unix_s),
             "  ends ", date(token.expires_unix_s), token.note.empty() ? "" : "  ", token.note);
}

int fail(bool json, const Status& status) { return daemon::fail<Json>(json, "nanoctrl token", status); }

}  // namespace

TokenCommands::TokenCommands(command_line::Command& program) {
  command_line::Command token = program.add_command("token", "make, list and revoke tokens");
  token.require_command();
  command_line::Command make =
      token.add_command("new", "print a new token that is in no store, for --admin-token-file");
  make.flag("--json", asking_.json, "print one JSON object");
  make.action([this] { return print_new(); });

  command_line::Command create =
      token.add_command("create", "make a token and print it; it cannot be shown again");
  create.option("--role", role_, kRoles).show_default().one_of({"read", "join", "admin"});
  create.option("--scope", scope_, "scope of the token; '*' for all scopes").show_default();
  create.option("--note", note_, "free text, such as the owner's name");
  create.option("--days", expires_days_, "days until it expires; 0: never")
      .show_default()
      .in_range(0.0, 36500.0);
  create.option("--store", store_,
                "for the first token: write it to this store (sqlite:PATH, redis://...), which no nanoctrl "
                "has open");
  rules_.add_options(create, "; with --store, must match the nanoctrl that will use the store");
  asking_.add_options(create);
  create.action([this] { return store_.empty() ? this->create() : create_first(); });

  command_line::Command list = token.add_command("list", "list the tokens, without their secrets");
  asking_.add_options(list);
  list.action([this] { return this->list(); });
  command_line::Command revoke = token.add_command("revoke", "refuse a token from now on");
  revoke.option("id", id_, "id of the token, as shown by list").required();
  asking_.add_options(revoke);
  revoke.action([this] { return this->revoke(); });
}

int TokenCommands::print_new() {
  const NewToken token = make_token(Role::kAdmin, "*", "", unix_time_s(), 0);
  return daemon::say(asking_.json, daemon::kExitOk, token.text, Json{{"token", token.text}});
}

int TokenCommands::create() {
  const Result<std::unique_ptr<Client>> client = asking_.client();
  if (!client) return fail(asking_.json, client.error());
  const auto seconds = static_cast<std::uint64_t>(std::llround(expires_days_ * 86400));
  const Result<TokenInfo> made = (*client)->create_token({*parse_role(role_), scope_, note_, seconds});
  if (!made) return fail(asking_.json, made.error());
  return daemon::say(asking_.json, daemon::kExitOk, made->token, to_json(*made));
}

int TokenCommands::create_first() {
  RegistryOptions options;
  options.epoch = wall_clock_epoch();
  rules_.apply(options);
  const Result<std::unique_ptr<Engine>> engine = open_engine(store_, options, steady_clock());
  if (!engine) return fail(asking_.json, engine.error());
  const auto seconds = static_cast<std::uint64_t>(std::llround(expires_days_ * 86400));
  const NewToken token = make_token(*parse_role(role_), scope_, note_, unix_time_s(), seconds);
  if (const Outcome out = (*engine)->submit(PutTokenCommand{token.record}); !out.status.ok())
    return fail(asking_.json, out.status);
  const TokenRecord& kept = token.record;
  return daemon::say(asking_.json, daemon::kExitOk, token.text,
                     to_json({kept.id, kept.role, kept.scope, kept.note, kept.created_unix_s,
                              kept.expires_unix_s, token.text}));
}

int TokenCommands::list() {
  const Result<std::unique_ptr<Client>> client = asking_.client();
  if (!client) return fail(asking_.json, client.error());
  const Result<std::vector<TokenInfo>> tokens = (*client)->list_tokens();
  if (!tokens) return fail(asking_.json, tokens.error());
  Json json = {{"tokens", Json::array()}};
  std::string text = tokens->empty() ? "no tokens: every client may do everything" : "";
  for (const TokenInfo& token : *tokens) {
    json["tokens"].push_back(to_json(token));
    text += str(text.empty() ? "" : "\n", line(token));
  }
  return daemon::say(asking_.json, daemon::kExitOk, text, json);
}

int TokenCommands::revoke() {
  const Result<std::unique_ptr<Client>> client = asking_.client();
  if (!client) return fail(asking_.json, client.error());
  if (Status status = (*client)->revoke_token(id_); !status.ok()) return fail(asking_.json, status);
  return daemon::say(asking_.json, daemon::kExitOk, str("token ", id_, " is revoked"),
                     Json{{"revoked", id_}});
}

}  // namespace slime::ctrl
