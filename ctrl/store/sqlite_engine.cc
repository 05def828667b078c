#include "ctrl/store/sqlite_engine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "base/unique_fd.h"

namespace slime::ctrl {
namespace {

constexpr std::int64_t kApplicationId = 0x536c4e43;  // "SlNC"; the `file` program shows it
// Version of the tables. Version 2 added records of scopes' keys. Version 3 added owners to the
// records of peers, and rows with ids and an index of keys. (Before, the tree of keys contained the
// values, so that looking up a key read large neighbors.) Opening an older file converts it, so
// that an older nanoctrl refuses the file instead of misreading it.
constexpr std::int64_t kSchemaVersion = 3;
constexpr std::int64_t kSchemaVersionRead = 1;
constexpr std::int64_t kSchemaVersionRows = 3;
// Peers in one transaction.
constexpr std::size_t kPeersPerTransaction = 256;
// Bounds of the time that submit() waits until its change is in the file; then it reports the
// change as maybe executed. Well below a TTL, because all threads that serve requests may wait for
// the file while heartbeats are queued. Long enough for a slow disk.
constexpr Nanos kWriteTimeMin = std::chrono::seconds(2);
constexpr Nanos kWriteTimeMax = std::chrono::seconds(8);
constexpr Nanos kRetry = std::chrono::milliseconds(500);

// Free bytes that the disk must have. SQLite's log file grows by about this much before SQLite
// reuses its space.
constexpr off_t kRoom = off_t{1} << 20;

constexpr const char* kSchema =
    "CREATE TABLE records (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, scope TEXT NOT NULL,"
    " name TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (kind, scope, name));";

Status locked_hint(Status status) {
  if (status.code() != Code::kUnavailable) return status;
  return {status.code(), str(status.text(),
                             "; does another nanoctrl run on this file? Its `backup` and `token` "
                             "commands work while it runs")};
}

Status make_schema(sqlite::Connection& connection) {
  SLIME_TRY(connection.run("BEGIN IMMEDIATE"));
  SLIME_TRY(connection.run(kSchema));
  SLIME_TRY(connection.run(str("PRAGMA application_id=", kApplicationId).c_str()));
  SLIME_TRY(connection.run(str("PRAGMA user_version=", kSchemaVersion).c_str()));
  return connection.run("COMMIT");
}

// Converts the tables of an older version in one transaction. If the process is killed in between,
// the file stays as it was, and the next open converts it.
Status upgrade_schema(sqlite::Connection& connection, std::int64_t version) {
  SLIME_TRY(connection.run("BEGIN IMMEDIATE"));
  if (version < kSchemaVersionRows) {
    SLIME_TRY(connection.run("ALTER TABLE records RENAME TO older_records"));
    SLIME_TRY(connection.run(kSchema));
    SLIME_TRY(connection.run(
        "INSERT INTO records (kind, scope, name, value) SELECT kind, scope, name, value FROM older_records"));
    SLIME_TRY(connection.run("DROP TABLE older_records"));
  }
  SLIME_TRY(connection.run(str("PRAGMA user_version=", kSchemaVersion).c_str()));
  return connection.run("COMMIT");
}

// Checks that the file is a database of nanoctrl and undamaged. Makes the tables in an empty file,
// and converts those of an older version.
Status check_schema(sqlite::Connection& connection) {
  const Result<std::int64_t> tables = connection.integer("SELECT count(*) FROM sqlite_master");
  if (!tables) return tables.error();
  const Result<std::int64_t> application = connection.integer("PRAGMA application_id");
  if (!application) return application.error();
  const Result<std::int64_t> version = connection.integer("PRAGMA user_version");
  if (!version) return version.error();
  if (*tables == 0 && *application == 0 && *version == 0) return make_schema(connection);
  if (*application != kApplicationId) return {Code::kCorrupt, "it is another program's database"};
  if (*version < kSchemaVersionRead || *version > kSchemaVersion)
    return {Code::kCorrupt,
            str("it has schema version ", *version, "; this nanoctrl knows ", kSchemaVersion)};
  const Result<std::string> check = connection.text("PRAGMA integrity_check(1)");
  if (!check) return check.error();
  if (*check != "ok") return {Code::kCorrupt, *check};
  if (*version == kSchemaVersion) return {};
  return upgrade_schema(connection, *version);
}

Status prepare(sqlite::Connection& connection) {
  // Locks the file for this process: another process that opens it gets an error at once, and
  // SQLite needs no shared memory file.
  SLIME_TRY(connection.run("PRAGMA locking_mode=EXCLUSIVE"));
  const Result<std::string> mode = connection.text("PRAGMA journal_mode=WAL");
  if (!mode) return locked_hint(mode.error());
  if (*mode != "wal") return {Code::kUnavailable, str("write-ahead logging is not possible there: ", *mode)};
  SLIME_TRY(connection.run("PRAGMA synchronous=FULL"));
  if (Status status = check_schema(connection); !status.ok()) return locked_hint(std::move(status));
  return {};
}

Result<std::vector<Record>> read_records(sqlite::Connection& connection) {
  std::vector<Record> out;
  Result<sqlite::Statement> rows = connection.prepare("SELECT kind, scope, name, value FROM records");
  if (!rows) return rows.error();
  while (true) {
    const Result<bool> row = rows->step();
    if (!row) return row.error();
    if (!*row) return out;
    Result<Record> record = record_from_texts({rows->text(0), rows->text(1), rows->text(2), rows->text(3)});
    if (!record) return record.error();
    out.push_back(std::move(*record));
  }
}

Result<Registry> read_registry(sqlite::Connection& connection, RegistryOptions options, TimePoint now) {
  const Result<std::vector<Record>> records = read_records(connection);
  if (!records) return records.error();
  if (records->empty()) return Registry(options);
  Result<RegistryState> state = decode_records(*records);
  if (!state) return state.error();
  return Registry::restore(options, std::move(*state), now);
}

// Checks that the disk has room: creates a file of kRoom bytes at `path`, and removes it.
Status check_room(const std::string& path) {
  // removes an old file, so that O_EXCL succeeds and never opens another user's file
  ::unlink(path.c_str());
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return from_errno(path, errno);
  const int error = ::posix_fallocate(fd.get(), 0, kRoom);
  ::unlink(path.c_str());
  return error == 0 ? Status() : from_errno(str("no room for ", kRoom, " bytes"), error);
}

Status with_advice(Status status, const std::string& path) {
  const bool corrupt = status.code() == Code::kCorrupt;
  std::string text = str("the store ", path, ": ", status.text());
  if (corrupt) text.append("; restore a backup (nanoctrl restore), or move the file away and start empty");
  return {status.code(), std::move(text)};
}

}  // namespace

Result<std::unique_ptr<Engine>> SqliteEngine::open(const std::string& path, RegistryOptions options,
                                                   const Clock& clock) {
  Result<sqlite::Connection> connection = sqlite::Connection::open(path);
  if (!connection) return with_advice(connection.error(), path);
  if (Status status = prepare(*connection); !status.ok()) return with_advice(std::move(status), path);
  Result<Registry> registry = read_registry(*connection, options, clock.now());
  if (!registry) return with_advice(registry.error(), path);
  std::unique_ptr<SqliteEngine> out(
      new SqliteEngine(std::move(*registry), clock, path, std::move(*connection)));
  if (Status status = out->start(options.epoch); !status.ok()) return with_advice(std::move(status), path);
  return std::unique_ptr<Engine>(std::move(out));
}

Status SqliteEngine::fill(const std::string& path, const Registry& registry) {
  Result<sqlite::Connection> connection = sqlite::Connection::open(path);
  if (!connection) return with_advice(connection.error(), path);
  if (Status status = prepare(*connection); !status.ok()) return with_advice(std::move(status), path);
  const Result<std::int64_t> records = connection->integer("SELECT count(*) FROM records");
  if (!records) return with_advice(records.error(), path);
  if (*records > 0)
    return {Code::kAlreadyExists,
            str("the store ", path, " has a registry; move it away, or name another file")};
  SLIME_TRY(connection->run("BEGIN IMMEDIATE"));
  Result<sqlite::Statement> put =
      connection->prepare("INSERT INTO records (kind, scope, name, value) VALUES (?1, ?2, ?3, ?4)");
  if (!put) return put.error();
  // Encodes one record at a time: all encoded records together are as large as the registry.
  const RegistryState state = registry.state();
  for (std::size_t i = 0; i < record_count(state); ++i) {
    const Record record = encode_record_at(state, i);
    put->bind(1, table_name(record.key.table));
    put->bind(2, record.key.scope);
    put->bind(3, record.key.name);
    put->bind(4, record.value);
    if (const Result<bool> stepped = put->step(); !stepped) return stepped.error();
  }
  return connection->run("COMMIT");
}

SqliteEngine::SqliteEngine(Registry registry, const Clock& clock, std::string path,
                           sqlite::Connection connection)
    : Engine(std::move(registry), clock), path_(std::move(path)), connection_(std::move(connection)) {}

SqliteEngine::~SqliteEngine() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

// Starts the writer thread. Raises revisions and incarnations to `epoch` at least, and stores them
// before a client gets any of them.
Status SqliteEngine::start(std::uint64_t epoch) {
  writer_ = make_thread([this] { run(); });
  return submit(RestartCommand{epoch}).status;
}

std::string SqliteEngine::describe() const { return str("sqlite:", path_); }

Status SqliteEngine::writable() const {
  const MutexLock lock(mutex_);
  return failure_;
}

void SqliteEngine::note(const Outcome& out) {
  if (out.touched.empty()) return;
  dirty_.add(out.touched);
  changed_.notify_one();
}

void SqliteEngine::expire() { note(apply(TickCommand{}, clock_.now())); }

Outcome SqliteEngine::submit(const Command& command) {
  const bool kept = !std::holds_alternative<HeartbeatCommand>(command);
  const MutexLock lock(mutex_);
  if (kept && !failure_.ok()) {
    expire();
    Outcome refused;
    refused.status = failure_;
    return refused;
  }
  Outcome out = apply(command, clock_.now());
  note(out);
  if (!kept || !out.status.ok()) return out;
  // Waits for the last change even if this command has changed nothing, because its outcome may
  // depend on changes that are not in the file yet.
  const std::uint64_t change = dirty_.last_change();
  const Nanos most = std::clamp<Nanos>(registry_.options().ttl / 3, kWriteTimeMin, kWriteTimeMax);
  const bool told = written_.wait_for(mutex_, most, [&]() SLIME_REQUIRES(mutex_) {
    return kept_ >= change || failed_ >= change || !failure_.ok();
  });
  if (!told) {
    failure_ = Status(Code::kUnavailable, str("the store ", path_, " does not answer"));
    written_.notify_all();  // other waiting submit() calls fail too
    SLIME_LOG(LogLevel::kError, "nanoctrl", describe(),
              " does not answer; changes are refused until it does");
  }
  if (kept_ < change) out.status = Status(failure_).with_maybe_executed(true);
  return out;
}

Status SqliteEngine::ready() {
  const MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;  // the writer thread retries by itself
  const TimePoint now = steady_clock().now();
  if (!probe_asked_) {
    if (probes_ > 0 && now - probed_at_ < (probed_.ok() ? kReadyFor : kReadyRetry)) return probed_;
    probe_asked_ = true;
    probe_asked_at_ = now;
    changed_.notify_one();
  }
  const std::uint64_t before = probes_;
  // Counts the wait from the request of the probe, so that later calls do not wait again for a
  // probe that hangs.
  const bool told =
      written_.wait_for(mutex_, probe_asked_at_ + kReadyWait - now,
                        [&]() SLIME_REQUIRES(mutex_) { return probes_ != before || !failure_.ok(); });
  if (!failure_.ok()) return failure_;
  return told ? probed_ : Status(Code::kUnavailable, str("the store ", path_, " does not answer"));
}

void SqliteEngine::run() {
  const MutexLock lock(mutex_);
  while (true) {
    if (failure_.ok()) {
      changed_.wait(mutex_,
                    [this]() SLIME_REQUIRES(mutex_) { return stopping_ || !dirty_.empty() || probe_asked_; });
    } else {
      changed_.wait_for(mutex_, kRetry, [this]() SLIME_REQUIRES(mutex_) { return stopping_; });
    }
    if (stopping_ && (dirty_.empty() || !failure_.ok())) return;
    if (!dirty_.empty()) write_dirty();
    if (probe_asked_ && failure_.ok()) answer_probe();
  }
}

void SqliteEngine::write_dirty() {
  const std::vector<DirtyRecords::Entry> entries = dirty_.take(kPeersPerTransaction);
  std::vector<RecordEncoder> encoders;
  encoders.reserve(entries.size());
  for (const DirtyRecords::Entry& entry : entries) encoders.push_back(record_encoder(registry_, entry.key));
  const std::uint64_t taken = dirty_.taken();
  mutex_.unlock();
  Status status = write(entries, encoders);
  encoders.clear();  // frees replaced records without the lock
  mutex_.lock();
  if (status.ok()) {
    if (!failure_.ok()) SLIME_LOG(LogLevel::kInfo, "nanoctrl", describe(), " can be written again");
    kept_ = taken;
  } else {
    if (failure_.ok())
      SLIME_LOG(LogLevel::kError, "nanoctrl", describe(), " cannot be written: ", status.to_string(),
                "; changes are refused until it can");
    dirty_.give_back(entries);
    failed_ = taken;
  }
  failure_ = std::move(status);
  written_.notify_all();
}

void SqliteEngine::answer_probe() {
  mutex_.unlock();
  Status status = probe();
  mutex_.lock();
  if (!status.ok() && probed_.ok())
    SLIME_LOG(LogLevel::kError, "nanoctrl", describe(), " is not ready: ", status.to_string());
  if (status.ok() && !probed_.ok()) SLIME_LOG(LogLevel::kInfo, "nanoctrl", describe(), " is ready again");
  probed_ = std::move(status);
  probed_at_ = steady_clock().now();
  probe_asked_ = false;
  ++probes_;
  written_.notify_all();
}

// Commits a small transaction, and checks the free space too: on a full disk, the transaction may
// still fit into unused space of SQLite's log file.
Status SqliteEngine::probe() {
  // SQLite writes the value to the file even if it is unchanged.
  Status status = connection_.run(str("PRAGMA user_version=", kSchemaVersion).c_str());
  if (status.ok()) status = check_room(str(path_, "-room"));
  if (status.ok()) return {};
  return {Code::kUnavailable, str("the store ", path_, ": ", status.text())};
}

Status SqliteEngine::write(const std::vector<DirtyRecords::Entry>& entries,
                           const std::vector<RecordEncoder>& encoders) {
  Status status = write_rows(entries, encoders);
  if (status.ok()) return status;
  // Ignores the error of ROLLBACK, which fails if SQLite has already ended the transaction.
  static_cast<void>(connection_.run("ROLLBACK"));
  return {Code::kUnavailable, str("the store ", path_, ": ", status.text())};
}

Status SqliteEngine::write_rows(const std::vector<DirtyRecords::Entry>& entries,
                                const std::vector<RecordEncoder>& encoders) {
  Result<sqlite::Statement> put = connection_.prepare(
      "INSERT INTO records (kind, scope, name, value) VALUES (?1, ?2, ?3, ?4)"
      " ON CONFLICT (kind, scope, name) DO UPDATE SET value = excluded.value");
  if (!put) return put.error();
  Result<sqlite::Statement> remove =
      connection_.prepare("DELETE FROM records WHERE kind = ?1 AND scope = ?2 AND name = ?3");
  if (!remove) return remove.error();
  SLIME_TRY(connection_.run("BEGIN IMMEDIATE"));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::optional<std::string> value = encoders[i]();
    sqlite::Statement& statement = value ? *put : *remove;
    const RecordKey& key = entries[i].key;
    statement.bind(1, table_name(key.table));
    statement.bind(2, key.scope);
    statement.bind(3, key.name);
    if (value) statement.bind(4, *value);
    if (const Result<bool> stepped = statement.step(); !stepped) return stepped.error();
  }
  return connection_.run("COMMIT");
}

}  // namespace slime::ctrl
