#include "ctrl/store/log_format.h"

#include <charconv>
#include <utility>

#include "base/str.h"
#include "ctrl/store/record_text.h"
#include "ctrl/wire/json_bodies.h"
#include "ctrl/wire/json_fields.h"

namespace slime::ctrl {
namespace {

constexpr std::uint64_t kMsMax = std::uint64_t{1} << 43;  // year 2248, which fits into TimePoint
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

// Encodes a command into the two parts of a log entry; one operator() per kind of command.
struct Writer {
  Json& head;
  std::string& body;

  void peer(const std::string& scope, const std::string& name) {
    head["scope"] = scope;
    head["name"] = name;
  }
  // Entries of earlier formats have no proof, so a missing field "by" means kTrusted.
  void proof(const Proof& by) {
    if (by.kind != Proof::Kind::kTrusted) head["by"] = by.kind == Proof::Kind::kSession ? "session" : "token";
    if (!by.owner.session_sha256.empty()) head["session_sha256"] = by.owner.session_sha256;
    if (!by.owner.token_id.empty()) head["token_id"] = by.owner.token_id;
  }
  void operator()(const RegisterCommand& c) {
    head["kind"] = "register";
    proof(c.by);
    head["takes_over"] = c.takes_over;
    body = wire::encode(wire::RegisterRequest{c.registration});
  }
  void operator()(const HeartbeatCommand& c) {
    head["kind"] = "heartbeat";
    proof(c.by);
    head["incarnation"] = c.incarnation;
    peer(c.scope, c.name);
  }
  void operator()(const RenewCommand& c) {
    head["kind"] = "renew";
    Json peers = Json::array();
    for (const RenewCommand::Peer& peer : c.peers)
      peers.push_back(Json::array({peer.scope, peer.name, peer.incarnation}));
    body = dump({{"peers", std::move(peers)}});
  }
  void operator()(const DeregisterCommand& c) {
    head["kind"] = "deregister";
    proof(c.by);
    head["incarnation"] = c.incarnation;
    peer(c.scope, c.name);
  }
  void operator()(const UpdateRegionsCommand& c) {
    head["kind"] = "regions";
    proof(c.by);
    head["replace"] = c.replace;
    peer(c.scope, c.name);
    body = wire::encode(wire::RegionsRequest{c.incarnation, c.publish, c.unpublish});
  }
  void operator()(const UpdateServicesCommand& c) {
    head["kind"] = "services";
    proof(c.by);
    head["replace"] = c.replace;
    peer(c.scope, c.name);
    body = wire::encode(wire::ServicesRequest{c.incarnation, c.publish, c.unpublish});
  }
  void operator()(const SetLinksCommand& c) {
    head["kind"] = "links";
    proof(c.by);
    peer(c.scope, c.name);
    body = wire::encode_targets(c.targets);
  }
  void operator()(const PutTokenCommand& c) {
    head["kind"] = "put_token";
    head["other_admin"] = c.other_admin;
    body = wire::encode_record(c.token);
  }
  void operator()(const RevokeTokenCommand& c) {
    head["kind"] = "revoke_token";
    head["other_admin"] = c.other_admin;
    head["id"] = c.id;
  }
  void operator()(const RotateKeysCommand& c) {
    head["kind"] = "rotate_keys";
    head["scope"] = c.scope;
    head["replaces"] = c.replaces;
    head["alone"] = c.alone;
    head["made_unix_s"] = c.made_unix_s;
    body = dump({{"key", to_hex(c.secret.bytes())}});
  }
  void operator()(const TickCommand&) { head["kind"] = "tick"; }
  void operator()(const RestartCommand& c) {
    head["kind"] = "restart";
    head["epoch"] = c.epoch;
  }
};

Proof read_proof(Fields& head) {
  Proof out = Proof::trusted();
  const std::string by = head.text("by", false);
  out.owner = {head.text("session_sha256", false), head.text("token_id", false)};
  if (by == "session") out.kind = Proof::Kind::kSession;
  if (by == "token") out.kind = Proof::Kind::kToken;
  if (out.kind == Proof::Kind::kTrusted && head.has("by")) head.problem("\"by\" is not session or token");
  if (Status status = check_owner(out.owner); !status.ok()) head.problem(status.text());
  return out;
}

Result<Command> read_register(Fields& head, std::string_view body) {
  RegisterCommand out{{}, head.integer("takes_over", true), read_proof(head)};
  Result<wire::RegisterRequest> request = wire::decode_register(body);
  if (!request) return request.error();
  if (request->takeover) return Status(Code::kCorrupt, "it has a takeover without an incarnation");
  if (!request->session.empty()) return Status(Code::kCorrupt, "it has a session, not its hash");
  out.registration = std::move(request->registration);
  return Command(std::move(out));
}

template <class T>
Result<Command> read_peer(Fields& head) {
  return Command(T{head.text("scope", true), head.text("name", true), head.integer("incarnation", true),
                   read_proof(head)});
}

template <class T, class Request>
Result<Command> read_update(Fields& head, Result<Request> request) {
  if (!request) return request.error();
  if (!request->session.empty()) return Status(Code::kCorrupt, "it has a session, not its hash");
  return Command(T{head.text("scope", true), head.text("name", true), request->incarnation,
                   head.boolean("replace"), std::move(request->publish), std::move(request->unpublish),
                   read_proof(head)});
}

Result<Command> read_links(Fields& head, std::string_view body) {
  SetLinksCommand out{head.text("scope", true), head.text("name", true), {}, read_proof(head)};
  Result<std::vector<std::string>> targets = wire::decode_targets(body);
  if (!targets) return targets.error();
  out.targets = std::move(*targets);
  return Command(std::move(out));
}

Result<Command> read_token(Fields& head, std::string_view body) {
  Result<TokenRecord> token = wire::decode_token(body);
  if (!token) return token.error();
  return Command(PutTokenCommand{std::move(*token), head.boolean("other_admin")});
}

Result<Command> read_rotation(Fields& head, std::string_view body) {
  RotateKeysCommand out;
  out.scope = head.text("scope", true);
  out.replaces = head.integer("replaces", true);
  out.alone = head.boolean("alone");
  out.made_unix_s = head.integer("made_unix_s", true);
  const Result<Json> json = parse_json(body, Code::kCorrupt, "the body");
  if (!json) return json.error();
  Fields fields(*json, Fields::Mode::kStrict);
  std::optional<Secret> key = Secret::from_hex(fields.text("key", true), limits::kScopeKeyBytes);
  SLIME_TRY(fields.finish());
  if (!key) return Status(Code::kCorrupt, "\"key\" is not one");
  out.secret = std::move(*key);
  return Command(std::move(out));
}

Result<Command> read_renew(std::string_view body) {
  const auto corrupt = [] {
    return Status(Code::kCorrupt, "\"peers\" is not a list of [scope, name, number]");
  };
  const Result<Json> json = parse_json(body, Code::kCorrupt, "the body");
  if (!json) return json.error();
  Fields fields(*json, Fields::Mode::kStrict);
  const Json* peers = fields.array("peers", true);
  SLIME_TRY(fields.finish());
  if (peers->size() > kRenewalsPerEntry) return corrupt();
  RenewCommand out;
  out.peers.reserve(peers->size());
  for (const Json& peer : *peers) {
    if (!peer.is_array() || peer.size() != 3) return corrupt();
    const auto* scope = peer[0].get_ptr<const std::string*>();
    const auto* name = peer[1].get_ptr<const std::string*>();
    const auto* incarnation = peer[2].get_ptr<const Json::number_unsigned_t*>();
    if (scope == nullptr || name == nullptr || incarnation == nullptr) return corrupt();
    out.peers.push_back({*scope, *name, *incarnation});
  }
  return Command(std::move(out));
}

Result<Command> read_command(const std::string& kind, Fields& head, std::string_view body) {
  if (kind == "register") return read_register(head, body);
  if (kind == "renew") return read_renew(body);
  if (kind == "regions") return read_update<UpdateRegionsCommand>(head, wire::decode_regions(body, false));
  if (kind == "services") return read_update<UpdateServicesCommand>(head, wire::decode_services(body, false));
  if (kind == "links") return read_links(head, body);
  if (kind == "put_token") return read_token(head, body);
  if (kind == "rotate_keys") return read_rotation(head, body);
  if (!body.empty()) return Status(Code::kCorrupt, "it has a body");
  if (kind == "heartbeat") return read_peer<HeartbeatCommand>(head);
  if (kind == "deregister") return read_peer<DeregisterCommand>(head);
  if (kind == "revoke_token")
    return Command(RevokeTokenCommand{head.text("id", true), head.boolean("other_admin")});
  if (kind == "tick") return Command(TickCommand{});
  return Command(RestartCommand{head.integer("epoch", true)});
}

bool known(const std::string& kind) {
  constexpr std::string_view kKinds[] = {"register",     "heartbeat", "renew",   "deregister",
                                         "regions",      "services",  "links",   "put_token",
                                         "revoke_token", "tick",      "restart", "rotate_keys"};
  return std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
}

bool read_number(std::string_view text, std::uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::optional<EntryId> EntryId::parse(std::string_view text) {
  const std::size_t dash = text.find('-');
  EntryId out;
  if (dash == std::string_view::npos || !read_number(text.substr(0, dash), out.ms) ||
      !read_number(text.substr(dash + 1), out.sequence) || out.ms > kMsMax)
    return std::nullopt;
  return out;
}

std::string EntryId::to_string() const { return str(ms, "-", sequence); }

TimePoint EntryId::time() const {
  return TimePoint(std::chrono::milliseconds(static_cast<std::int64_t>(ms)));
}

EncodedEntry encode_entry(const LogEntry& entry) {
  Json head = {{"engine", entry.engine}, {"number", entry.number}};
  std::string body;
  std::visit(Writer{head, body}, entry.command);
  return {dump(head), std::move(body)};
}

Result<LogEntry> decode_entry(std::string_view head, std::string_view body) {
  const auto corrupt = [](std::string_view what) { return Status(Code::kCorrupt, std::string(what)); };
  if (head.size() + body.size() > kEntryBytes) return corrupt("it is too large");
  const Result<Json> json = parse_json(head, Code::kCorrupt, "the head");
  if (!json) return json.error();
  Fields fields(*json, Fields::Mode::kStrict);
  const std::string kind = fields.text("kind", true);
  if (fields.has("kind") && !known(kind))
    return Status(Code::kUnimplemented, str("commands of kind '", kind.substr(0, 64), "' are unknown here"));
  std::string engine = fields.text("engine", true);
  const std::uint64_t number = fields.integer("number", true);
  Result<Command> command = read_command(kind, fields, body);
  if (!command) return corrupt(command.error().text());
  if (Status status = fields.finish(); !status.ok()) return corrupt(status.text());
  return LogEntry{std::move(engine), number, std::move(*command)};
}

std::vector<std::string> encode_chunks(const std::vector<Record>& records) {
  std::vector<std::string> out;
  Json list = Json::array();
  std::size_t bytes = 0;
  const auto flush = [&] {
    out.push_back(dump({{"records", std::exchange(list, Json::array())}}));
    bytes = 0;
  };
  for (const Record& record : records) {
    list.push_back(json_of(record));
    bytes += record.key.scope.size() + record.key.name.size() + record.value.size();
    if (bytes >= kChunkBytes) flush();
  }
  if (!list.empty()) flush();
  return out;
}

Status decode_chunk(std::string_view chunk, std::vector<Record>& out) {
  const Result<Json> json = parse_json(chunk, Code::kCorrupt, "the records");
  if (!json) return json.error();
  Fields fields(*json, Fields::Mode::kLenient);
  const Json* list = fields.array("records", true);
  SLIME_TRY(fields.finish());
  for (const Json& item : *list) {
    Result<Record> record = parse_record(item);
    if (!record) return record.error();
    out.push_back(std::move(*record));
  }
  return {};
}

std::string describe_rules(const RegistryOptions& options, std::uint64_t format) {
  return str(
      "format ", format, ", ttl ", std::chrono::duration_cast<std::chrono::milliseconds>(options.ttl).count(),
      " ms, ", options.scopes_max, " scopes, ", options.peers_per_scope_max, " peers and ",
      options.events_per_scope_max, " events of each, ", options.record_bytes_max, " bytes",
      format < kLogFormatQuotas ? "" : str(", ", options.record_bytes_per_scope_max, " of each scope"));
}

}  // namespace slime::ctrl
