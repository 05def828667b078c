#include "ctrl/store/redis_log.h"

#include <charconv>
#include <utility>

#include "base/str.h"

namespace slime::ctrl {
namespace {

using redis::Arguments;
using redis::Value;

// Attempts to load a snapshot, which another engine may replace while it is read.
constexpr int kLoadAttempts = 3;
constexpr std::uint64_t kChunksMax = 1 << 16;
// Seconds after which Redis removes a snapshot that a crashed engine has staged but not finished.
constexpr const char* kStagingSeconds = "60";

// Script that appends entries if the lineage matches. KEYS: snapshot, log. ARGV: the lineage, then
// head and body of each entry.
constexpr std::string_view kAppend = R"(
if redis.call('HGET', KEYS[1], 'lineage') ~= ARGV[1] then return 0 end
for i = 2, #ARGV, 2 do redis.call('XADD', KEYS[2], '*', 'head', ARGV[i], 'body', ARGV[i + 1]) end
return 1)";

// KEYS: snapshot, log, staged snapshot.
constexpr std::string_view kCreate = R"(
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('DEL', KEYS[3])
  return 0
end
if redis.call('EXISTS', KEYS[3]) == 0 then return 0 end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[3], 'trimmed', '0-0', 'removed', '0')
redis.call('RENAME', KEYS[3], KEYS[1])
redis.call('PERSIST', KEYS[1])
return 1)";

// Script that replaces the snapshot with the staged one. KEYS: snapshot, log, staged snapshot.
// ARGV: "entries" of the snapshot to replace. Removes the entries up to the old snapshot. Keeps the
// entries between the two snapshots: engines that started from the old one may still read them.
constexpr std::string_view kAdvance = R"(
local old = redis.call('HMGET', KEYS[1], 'lineage', 'entries', 'id', 'removed')
local new = redis.call('HMGET', KEYS[3], 'lineage', 'entries')
if not old[1] or old[1] ~= new[1] or old[2] ~= ARGV[1] or tonumber(old[2]) >= tonumber(new[2]) then
  redis.call('DEL', KEYS[3])
  return 0
end
local gone = tonumber(old[2]) - tonumber(old[4])
local length = redis.call('XLEN', KEYS[2])
if gone > 0 then redis.call('XTRIM', KEYS[2], 'MAXLEN', math.max(0, length - gone)) end
redis.call('HSET', KEYS[3], 'trimmed', old[3], 'removed', old[2])
redis.call('RENAME', KEYS[3], KEYS[1])
redis.call('PERSIST', KEYS[1])
return 1)";

const Arguments kHeadFields = {"lineage", "id", "entries", "trimmed"};

Status corrupt(std::string_view what) {
  return {Code::kCorrupt, str("what is in Redis is not a registry's log: ", what)};
}

bool read_number(const Value& value, std::uint64_t& out) {
  const char* const end = value.text.data() + value.text.size();
  const auto [last, error] = std::from_chars(value.text.data(), end, out);
  return error == std::errc() && last == end;
}

Arguments get_head(const LogKeys& keys) {
  Arguments out = {"HMGET", keys.snapshot};
  out.insert(out.end(), kHeadFields.begin(), kHeadFields.end());
  return out;
}

// [id, [field, value, ...]]
Result<StoredEntry> to_entry(const Value& value) {
  if (value.items.size() != 2) return corrupt("an entry has another shape");
  const std::optional<EntryId> id = EntryId::parse(value.items[0].text);
  if (!id) return corrupt(str("an entry is named '", value.items[0].text.substr(0, 64), "'"));
  const std::vector<Value>& fields = value.items[1].items;
  if (fields.size() != 4 || fields[0].text != "head" || fields[2].text != "body")
    return corrupt(str("entry ", id->to_string(), " has other fields than head and body"));
  return StoredEntry{*id, {fields[1].text, fields[3].text}};
}

Result<SnapshotHead> to_head(const Value& reply) {
  if (reply.items.size() != kHeadFields.size()) return corrupt("the snapshot has another shape");
  SnapshotHead out;
  if (reply.items[0].nil()) return out;
  out.lineage = reply.items[0].text;
  const std::optional<EntryId> at = EntryId::parse(reply.items[1].text);
  const std::optional<EntryId> trimmed = EntryId::parse(reply.items[3].text);
  if (out.lineage.empty() || !at || !trimmed || !read_number(reply.items[2], out.entries))
    return corrupt("the snapshot's fields lineage, id, entries and trimmed");
  out.at = *at;
  out.trimmed = *trimmed;
  return out;
}

}  // namespace

LogKeys::LogKeys(const std::string& prefix)
    // The braces put both keys of a registry into the same slot of a Redis cluster.
    : log(str("{", prefix, "}:log")), snapshot(str("{", prefix, "}:snapshot")) {}

Result<RedisLog::Batch> RedisLog::read(EntryId after, std::size_t count, Nanos wait) {
  const std::string position = after.to_string();
  const std::string limit = std::to_string(count);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait).count();
  const std::string wait_ms = std::to_string(ms);
  Arguments read = {"XREAD", "COUNT", limit};
  if (ms > 0) read.insert(read.end(), {"BLOCK", wait_ms});
  read.insert(read.end(), {"STREAMS", keys_.log, position});
  SLIME_TRY(connection_.send(read));
  SLIME_TRY(connection_.send(get_head(keys_)));
  const Result<Value> reply = connection_.receive();
  Result<SnapshotHead> head = receive_head();
  if (!reply) return reply.error();
  if (!head) return head.error();
  Batch out;
  out.head = std::move(*head);
  if (reply->nil()) return out;
  if (reply->items.size() != 1 || reply->items[0].items.size() != 2) return corrupt("the stream's reply");
  for (const Value& item : reply->items[0].items[1].items) {
    Result<StoredEntry> entry = to_entry(item);
    // Fails the whole batch because of one malformed entry, also if valid entries come before it.
    if (!entry) return entry.error();
    out.entries.push_back(std::move(*entry));
  }
  return out;
}

Result<SnapshotHead> RedisLog::receive_head() {
  const Result<Value> reply = connection_.receive();
  if (!reply) return reply.error();
  return to_head(*reply);
}

Result<std::optional<StoredEntry>> RedisLog::entry(EntryId id) {
  const std::string name = id.to_string();
  const Result<Value> reply = connection_.command({"XRANGE", keys_.log, name, name});
  if (!reply) return reply.error();
  if (reply->items.empty()) return std::optional<StoredEntry>();
  Result<StoredEntry> out = to_entry(reply->items[0]);
  if (!out) return out.error();
  return std::optional<StoredEntry>(std::move(*out));
}

Status RedisLog::append(const std::string& lineage, const std::vector<EncodedEntry>& entries) {
  Arguments arguments = {"EVAL", kAppend, "2", keys_.snapshot, keys_.log, lineage};
  for (const EncodedEntry& entry : entries) {
    arguments.emplace_back(entry.head);
    arguments.emplace_back(entry.body);
  }
  const Result<Value> reply = connection_.command(arguments);
  if (!reply) return reply.error();
  return reply->integer == 1 ? Status() : Status(Code::kAborted, "the log in Redis is another one now");
}

Result<std::optional<Snapshot>> RedisLog::load() {
  for (int attempt = 0; attempt < kLoadAttempts; ++attempt) {
    SLIME_TRY(connection_.send(get_head(keys_)));
    SLIME_TRY(connection_.send({"HMGET", keys_.snapshot, "rules", "chunks"}));
    Result<SnapshotHead> head = receive_head();
    const Result<Value> about = connection_.receive();
    if (!head) return head.error();
    if (!about) return about.error();
    if (head->lineage.empty()) return std::optional<Snapshot>();
    std::uint64_t chunks = 0;
    if (about->items.size() != 2 || !read_number(about->items[1], chunks) || chunks > kChunksMax)
      return corrupt("the snapshot's fields rules and chunks");
    Snapshot out{std::move(*head), about->items[0].text, {}};
    bool complete = true;
    for (std::uint64_t i = 0; i < chunks && complete; ++i) {
      Result<Value> chunk = connection_.command({"HGET", keys_.snapshot, std::to_string(i)});
      if (!chunk) return chunk.error();
      complete = !chunk->nil();
      out.chunks.push_back(std::move(chunk->text));
    }
    SLIME_TRY(connection_.send(get_head(keys_)));
    const Result<SnapshotHead> after = receive_head();
    if (!after) return after.error();
    if (after->lineage != out.head.lineage || after->entries != out.head.entries) continue;
    if (!complete) return corrupt("the snapshot has fewer records than it says");
    return std::optional<Snapshot>(std::move(out));
  }
  return Status(Code::kUnavailable, "the snapshot in Redis changes all the time");
}

// Writes the snapshot to the temporary key `key`, chunk by chunk, so that Redis can serve other
// clients in between.
Status RedisLog::stage(const Snapshot& snapshot, const std::string& key) {
  const std::string id = snapshot.head.at.to_string();
  const std::string entries = std::to_string(snapshot.head.entries);
  const std::string chunks = std::to_string(snapshot.chunks.size());
  SLIME_TRY(connection_.command({"DEL", key}).status());
  SLIME_TRY(connection_
                .command({"HSET", key, "lineage", snapshot.head.lineage, "rules", snapshot.rules, "id", id,
                          "entries", entries, "chunks", chunks})
                .status());
  SLIME_TRY(connection_.command({"EXPIRE", key, kStagingSeconds}).status());
  for (std::size_t i = 0; i < snapshot.chunks.size(); ++i)
    SLIME_TRY(connection_.command({"HSET", key, std::to_string(i), snapshot.chunks[i]}).status());
  return {};
}

Status RedisLog::create(const Snapshot& snapshot, const std::string& name) {
  const std::string staged = str(keys_.snapshot, ":", name);
  SLIME_TRY(stage(snapshot, staged));
  return connection_.command({"EVAL", kCreate, "3", keys_.snapshot, keys_.log, staged}).status();
}

Status RedisLog::advance(const Snapshot& snapshot, std::uint64_t replaced, const std::string& name) {
  const std::string staged = str(keys_.snapshot, ":", name);
  SLIME_TRY(stage(snapshot, staged));
  const std::string entries = std::to_string(replaced);
  return connection_.command({"EVAL", kAdvance, "3", keys_.snapshot, keys_.log, staged, entries}).status();
}

}  // namespace slime::ctrl
