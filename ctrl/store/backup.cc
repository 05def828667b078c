#include "ctrl/store/backup.h"

#include <istream>
#include <utility>

#include "base/str.h"
#include "ctrl/store/record_text.h"
#include "ctrl/store/redis_load.h"
#include "ctrl/store/redis_url.h"
#include "ctrl/store/sqlite_engine.h"
#include "ctrl/wire/json_fields.h"

namespace slime::ctrl {
namespace {

constexpr std::string_view kFormat = "nanoctrl backup";
// The format of a page. Differs from kFormat, so that restore refuses a page.
constexpr std::string_view kPageFormat = "nanoctrl backup page";
constexpr std::uint64_t kVersion = 1;

Status invalid(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

Status check_version(std::uint64_t version) {
  if (version == kVersion) return {};
  return invalid(str("the backup is of version ", version, "; this nanoctrl knows ", kVersion));
}

std::string join_records(const std::vector<Record>& records) {
  std::string out;
  for (const Record& record : records)
    out.append(out.empty() ? "" : kBackupSeparator).append(encode_backup_record(record));
  return out;
}

// Parses the text of a backup as a stream. Passes each parsed record to `seen`, then decodes it
// into `state`.
class BackupReader final : public nlohmann::json_sax<Json> {
 public:
  BackupReader(RegistryState& state, const std::function<void(const Record&)>& seen)
      : state_(state), seen_(seen) {}

  // Returns the first problem found while parsing; OK if the text is a complete backup.
  Status finish() const {
    SLIME_TRY(status_);
    SLIME_TRY(check_head());
    if (!records_) return invalid("field 'records' is missing");
    return {};
  }

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ == 1 && key_ == "version") version_ = value;
    return other();
  }
  bool string(string_t& value) override {
    if (depth_ == 1 && key_ == "format") format_ = value;
    if (!inside_) return true;
    if (depth_ != kRecordDepth) return fail(RecordParser::malformed());
    Status status = parser_.add(std::move(value));
    return status.ok() || fail(std::move(status));
  }
  bool start_object(std::size_t) override { return open(); }
  bool key(string_t& key) override {
    if (depth_ == 1) key_ = std::move(key);
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 1 && key_ == "records") {
      // Checks the version before the records, because records of a later version may look
      // different.
      if (Status status = check_head(); !status.ok()) return fail(std::move(status));
      inside_ = records_ = true;
      ++depth_;
      return true;
    }
    if (!inside_) return open();
    return ++depth_ == kRecordDepth || fail(RecordParser::malformed());
  }
  bool end_array() override {
    --depth_;
    if (!inside_) return true;
    if (depth_ + 1 != kRecordDepth) {
      inside_ = false;
      return true;
    }
    const Result<Record> record = parser_.finish();
    if (!record) return fail(record.error());
    if (seen_) seen_(*record);
    Status status = decode_record(*record, state_);
    return status.ok() || fail(std::move(status));
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return fail(invalid(str("the backup is not JSON at byte ", at)));
  }

 private:
  static constexpr std::size_t kRecordDepth = 3;  // nesting inside a record: object, list, record

  // Checks the fields "format" and "version", which must come before the records.
  Status check_head() const {
    if (format_ != kFormat) return invalid("this is no backup of nanoctrl");
    if (!version_) return invalid("field 'version' is missing");
    return check_version(*version_);
  }
  bool other() { return inside_ ? fail(RecordParser::malformed()) : true; }
  // Enters an object or a list whose contents are ignored.
  bool open() {
    if (inside_) return fail(RecordParser::malformed());
    if (++depth_ > limits::kJsonDepth) return fail(invalid("the backup is nested too deep"));
    return true;
  }
  bool fail(Status status) {
    status_ = std::move(status);
    return false;
  }

  RegistryState& state_;
  const std::function<void(const Record&)>& seen_;
  std::size_t depth_ = 0;  // of open objects and lists
  std::string key_;        // last key of the outermost object
  std::string format_;
  std::optional<std::uint64_t> version_;
  bool records_ = false;  // the list of records has begun
  bool inside_ = false;   // inside the list of records
  RecordParser parser_;
  Status status_;
};

}  // namespace

std::string_view backup_head() { return "{\"format\":\"nanoctrl backup\",\"version\":1,\"records\":[\n"; }
std::string_view backup_tail() { return "\n]}\n"; }

std::string encode_backup_record(const Record& record) { return dump(json_of(record)); }

std::string encode_backup(const std::vector<Record>& records) {
  return str(backup_head(), join_records(records), backup_tail());
}

Result<RegistryState> decode_backup(std::istream& in, const std::function<void(const Record&)>& seen) {
  RegistryState state;
  BackupReader reader(state, seen);
  Json::sax_parse(in, &reader);
  if (in.bad()) return Status(Code::kUnavailable, "the backup cannot be read to its end");
  SLIME_TRY(reader.finish());
  SLIME_TRY(check_whole(state));
  return state;
}

std::string encode_backup_page(const std::vector<Record>& records, const std::optional<std::string>& next) {
  Json head = {{"format", kPageFormat}, {"version", kVersion}};
  if (next) head["next"] = *next;
  std::string out = dump(head);
  out.pop_back();
  return out.append(",\"records\":[\n").append(join_records(records)).append(backup_tail());
}

Result<BackupPage> decode_backup_page(std::string_view text) {
  const Result<Json> json = parse_json(text, Code::kInvalidArgument, "the page of the backup");
  if (!json) return json.error();
  Fields in(*json, Fields::Mode::kLenient);
  const std::string format = in.text("format", false);
  if (format != kFormat && format != kPageFormat) return invalid("this is no backup of nanoctrl");
  SLIME_TRY(check_version(in.integer("version", true)));
  BackupPage out;
  if (in.has("next")) out.next = in.text("next", true);
  const Json* list = in.array("records", true);
  SLIME_TRY(in.finish());
  out.records.reserve(list->size());
  for (const Json& item : *list) {
    Result<Record> record = parse_record(item);
    if (!record) return record.error();
    out.records.push_back(std::move(*record));
  }
  return out;
}

Status restore_backup(const std::string& store, RegistryOptions options, RegistryState state,
                      const Clock& clock) {
  const std::uint64_t epoch = options.epoch;
  // Does not restore keys of scopes: a token that was revoked since the backup may know them.
  // Members get new keys with a heartbeat.
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
