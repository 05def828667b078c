#include "ctrl/store/records.h"

#include <array>
#include <iterator>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "ctrl/wire/json_bodies.h"
#include "ctrl/wire/json_fields.h"

namespace slime::ctrl {
namespace {

constexpr std::array<std::string_view, 6> kTableNames = {"registry", "scope", "peer",
                                                         "token",    "links", "keys"};

std::string encode_counters(const RegistryState& state) {
  return dump({{"epoch", state.epoch},
               {"last_incarnation", state.last_incarnation},
               {"revision_floor", state.revision_floor}});
}
std::string encode_scope(std::uint64_t revision) { return dump({{"revision", revision}}); }

std::string describe(const RecordKey& key) {
  return str("record ", table_name(key.table), " '", key.scope, "' '", key.name, "'");
}

Status decode_counters(const Json& json, RegistryState& state) {
  Fields in(json, Fields::Mode::kLenient);
  state.epoch = in.integer("epoch", true);
  state.last_incarnation = in.integer("last_incarnation", true);
  state.revision_floor = in.integer("revision_floor", true);
  return in.finish();
}

Status decode_value(const Record& record, RegistryState& state) {
  if (record.key.table == Table::kPeer) {
    Result<PeerInfo> peer = wire::decode_peer_record(record.value);
    if (!peer) return peer.error();
    if (peer->scope != record.key.scope || peer->name != record.key.name)
      return {Code::kCorrupt, "the key is another peer's"};
    const Nanos expires_in = peer->expires_in;
    state.peers.push_back({std::make_shared<const PeerInfo>(std::move(*peer)), expires_in});
    return {};
  }
  if (record.key.table == Table::kToken) {
    Result<TokenRecord> token = wire::decode_token(record.value);
    if (!token) return token.error();
    if (token->id != record.key.name) return {Code::kCorrupt, "the key is another token's"};
    state.tokens[token->id] = std::move(*token);
    return {};
  }
  if (record.key.table == Table::kKeys) {
    Result<ScopeKeys> keys = wire::decode_keys(record.value);
    if (!keys) return keys.error();
    state.keys[record.key.scope] = std::move(*keys);
    return {};
  }
  const Result<Json> json = parse_json(record.value, Code::kCorrupt, "the record");
  if (!json) return json.error();
  if (record.key.table == Table::kRegistry) return decode_counters(*json, state);
  Fields in(*json, Fields::Mode::kLenient);
  if (record.key.table == Table::kLinks) {
    state.links.push_back({record.key.scope, record.key.name,
                           std::make_shared<const std::vector<std::string>>(in.texts("targets"))});
    return in.finish();
  }
  SLIME_TRY(check_name("scope", record.key.scope));
  state.revisions[record.key.scope] = in.integer("revision", true);
  return in.finish();
}

}  // namespace

std::string_view table_name(Table table) { return kTableNames.at(static_cast<std::size_t>(table)); }

std::optional<Table> parse_table(std::string_view name) {
  for (std::size_t i = 0; i < kTableNames.size(); ++i) {
    if (kTableNames[i] == name) return static_cast<Table>(i);
  }
  return std::nullopt;
}

Result<Record> record_from_texts(RecordTexts texts) {
  const std::optional<Table> table = parse_table(texts[0]);
  if (!table)
    return Status(Code::kCorrupt, str("records of kind '", texts[0].substr(0, 64), "' are unknown"));
  return Record{{*table, std::move(texts[1]), std::move(texts[2])}, std::move(texts[3])};
}

RecordEncoder record_encoder(const Registry& registry, const RecordKey& key) {
  switch (key.table) {
    case Table::kRegistry:
      return [counters = registry.counters()] { return encode_counters(counters); };
    case Table::kScope:
      if (!registry.has_scope(key.scope)) break;
      return [revision = registry.revision(key.scope)] { return encode_scope(revision); };
    case Table::kPeer:
      if (std::optional<PeerView> peer = registry.view(key.scope, key.name))
        return [peer = std::move(*peer)] { return wire::encode_record(*peer.info, peer.expires_in); };
      break;
    case Table::kToken:
      if (const auto it = registry.tokens().find(key.name); it != registry.tokens().end())
        return [token = it->second] { return wire::encode_record(token); };
      break;
    case Table::kLinks:
      if (auto targets = registry.links(key.scope, key.name))
        return [targets = std::move(targets)] { return wire::encode_targets(*targets); };
      break;
    case Table::kKeys:
      if (const ScopeKeys& keys = registry.keys(key.scope); !keys.empty())
        return [keys] { return wire::encode_keys(keys); };
      break;
  }
  return [] { return std::nullopt; };
}

std::optional<std::string> encode_record(const Registry& registry, const RecordKey& key) {
  return record_encoder(registry, key)();
}

std::vector<Record> encode_records(const Registry& registry) { return encode_records(registry.state()); }

std::vector<Record> encode_records(const RegistryState& state) {
  std::vector<Record> out;
  out.reserve(record_count(state));
  for (std::size_t i = 0; i < record_count(state); ++i) out.push_back(encode_record_at(state, i));
  return out;
}

std::size_t record_count(const RegistryState& state) {
  return 1 + state.revisions.size() + state.peers.size() + state.tokens.size() + state.links.size() +
         state.keys.size();
}

Record encode_record_at(const RegistryState& state, std::size_t index) {
  if (index-- == 0) return {{Table::kRegistry, {}, {}}, encode_counters(state)};
  if (index < state.revisions.size()) {
    const auto it = std::next(state.revisions.begin(), static_cast<std::ptrdiff_t>(index));
    return {{Table::kScope, it->first, {}}, encode_scope(it->second)};
  }
  index -= state.revisions.size();
  if (index < state.peers.size()) {
    const PeerView& peer = state.peers[index];
    return {{Table::kPeer, peer.info->scope, peer.info->name},
            wire::encode_record(*peer.info, peer.expires_in)};
  }
  index -= state.peers.size();
  if (index < state.tokens.size()) {
    const auto it = std::next(state.tokens.begin(), static_cast<std::ptrdiff_t>(index));
    return {{Table::kToken, {}, it->first}, wire::encode_record(it->second)};
  }
  index -= state.tokens.size();
  if (index < state.links.size()) {
    const RegistryState::Links& links = state.links[index];
    return {{Table::kLinks, links.scope, links.name}, wire::encode_targets(*links.targets)};
  }
  index -= state.links.size();
  SLIME_CHECK(index < state.keys.size());
  const auto it = std::next(state.keys.begin(), static_cast<std::ptrdiff_t>(index));
  return {{Table::kKeys, it->first, {}}, wire::encode_keys(it->second)};
}

Status decode_record(const Record& record, RegistryState& state) {
  if (Status status = decode_value(record, state); !status.ok())
    return {Code::kCorrupt, str(describe(record.key), ": ", status.text())};
  return {};
}

Status check_whole(const RegistryState& state) {
  if (state.epoch == 0) return {Code::kCorrupt, "the registry's counters are not there"};
  return {};
}

Result<RegistryState> decode_records(const std::vector<Record>& records) {
  RegistryState state;
  for (const Record& record : records) SLIME_TRY(decode_record(record, state));
  SLIME_TRY(check_whole(state));
  return state;
}

}  // namespace slime::ctrl
