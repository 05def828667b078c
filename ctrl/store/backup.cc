#include "ctrl/store/backup.h"

#include <utility>

#include "base/str.h"
#include "ctrl/json_fields.h"
#include "ctrl/store/redis_load.h"
#include "ctrl/store/redis_url.h"
#include "ctrl/store/sqlite_engine.h"

namespace slime::ctrl {
namespace {

constexpr std::string_view kFormat = "nanoctrl backup";
constexpr std::uint64_t kVersion = 1;

Status invalid(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

Result<Record> read_record(const Json& item) {
  const std::string* texts[4] = {};
  for (std::size_t i = 0; i < 4 && item.is_array() && item.size() == 4; ++i)
    texts[i] = item[i].get_ptr<const std::string*>();
  if (texts[0] == nullptr || texts[1] == nullptr || texts[2] == nullptr || texts[3] == nullptr)
    return Status(Code::kCorrupt, "a record of the backup is not four texts");
  const std::optional<Table> table = parse_table(*texts[0]);
  if (!table)
    return Status(Code::kCorrupt, str("records of kind '", texts[0]->substr(0, 64), "' are unknown"));
  return Record{{*table, *texts[1], *texts[2]}, *texts[3]};
}

}  // namespace

std::string encode_backup(const Registry& registry) {
  // By hand around the records, of which there may be very many.
  std::string out = str("{\"format\":\"", kFormat, "\",\"version\":", kVersion, ",\"records\":[");
  bool first = true;
  for (const Record& record : encode_records(registry)) {
    // A restore makes new ones, and a file that lies about is to let nobody in.
    if (record.key.table == Table::kKeys) continue;
    out.append(first ? "\n" : ",\n");
    out.append(
        dump(Json::array({table_name(record.key.table), record.key.scope, record.key.name, record.value})));
    first = false;
  }
  return out.append("\n]}\n");
}

Result<RegistryState> decode_backup(std::string_view text) {
  const Result<Json> json = parse_json(text, Code::kInvalidArgument, "the backup");
  if (!json) return json.error();
  Fields in(*json, Fields::Mode::kLenient);
  if (in.text("format", false) != kFormat) return invalid("this is no backup of nanoctrl");
  const std::uint64_t version = in.integer("version", true);
  if (version != kVersion)
    return invalid(str("the backup is of version ", version, "; this nanoctrl knows ", kVersion));
  const Json* list = in.array("records", true);
  SLIME_TRY(in.finish());
  std::vector<Record> records;
  records.reserve(list->size());
  for (const Json& item : *list) {
    Result<Record> record = read_record(item);
    if (!record) return record.error();
    records.push_back(std::move(*record));
  }
  return decode_records(records);
}

Status restore_backup(const std::string& store, RegistryOptions options, RegistryState state,
                      const Clock& clock) {
  const std::uint64_t epoch = options.epoch;
  // Whose token was revoked since the backup may know them. Members get new ones with their next heartbeat.
  state.keys.clear();
  Result<Registry> registry = Registry::restore(options, std::move(state), clock.now());
  if (!registry) return registry.error();
  registry->apply(RestartCommand{epoch}, clock.now());
  if (store.starts_with(kSqliteScheme))
    return SqliteEngine::fill(store.substr(kSqliteScheme.size()), *registry);
  if (redis::is_url(store)) return begin_log(store, *registry);
  return invalid(str("'", store, "' is not a store that keeps anything: sqlite:PATH or redis://..."));
}

}  // namespace slime::ctrl
