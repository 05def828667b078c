#include "ctrl/store/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "base/str.h"
#include "base/unique_fd.h"

namespace slime::ctrl::sqlite {
namespace {

Code code_for(int result) {
  switch (result & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kCorrupt;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return Code::kPermissionDenied;
    case SQLITE_MISUSE:
    case SQLITE_ERROR:
      return Code::kInternal;
    default:
      // such as: file locked, disk full, no such folder, I/O error
      return Code::kUnavailable;
  }
}

Status error_of(sqlite3* connection, int result) {
  return {code_for(result), connection == nullptr ? sqlite3_errstr(result) : sqlite3_errmsg(connection)};
}

// Removes the permissions of group and others from `file`, with a warning. Returns
// kPermissionDenied if the file belongs to another user or its mode cannot be changed.
Status keep_file_private(const std::string& file) {
  const auto refused = [&](const char* why) {
    return Status(Code::kPermissionDenied, str(file, " may be used by others than its owner, and ", why,
                                               " (try, as its owner: chmod 600 ", file, ")"));
  };
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return errno == ENOENT ? Status() : from_errno(file, errno);
  if (!S_ISREG(info.st_mode) || (info.st_mode & 077) == 0) return {};
  if (info.st_uid != ::geteuid()) return refused("it is another user's");
  if (::chmod(file.c_str(), info.st_mode & 0700) != 0) return refused(std::strerror(errno));
  SLIME_LOG(
      LogLevel::kWarning, "nanoctrl", file,
      " could be used by others than its owner, and has keys of agents: its mode is 0600 now. Other users "
      "may have read the keys: nanoctrl token revoke causes new keys");
  return {};
}

// Makes the database file and its companion files private: an earlier version, or a copy by hand,
// may have left them readable for others.
Status keep_private(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) SLIME_TRY(keep_file_private(path + suffix));
  return {};
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const noexcept { sqlite3_finalize(statement); }
void Connection::Close::operator()(sqlite3* connection) const noexcept { sqlite3_close_v2(connection); }

void Statement::bind(int parameter, std::string_view text) {
  const int result = sqlite3_bind_text64(statement_.get(), parameter, text.data(), text.size(),
                                         SQLITE_TRANSIENT, SQLITE_UTF8);
  SLIME_CHECK(result == SQLITE_OK || result == SQLITE_NOMEM || result == SQLITE_TOOBIG);
}

Result<bool> Statement::step() {
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  sqlite3* connection = sqlite3_db_handle(statement_.get());
  Status status = result == SQLITE_DONE ? Status() : error_of(connection, result);
  sqlite3_reset(statement_.get());
  if (!status.ok()) return status;
  return false;
}

std::string Statement::text(int column) const {
  const auto* bytes = sqlite3_column_text(statement_.get(), column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
  return bytes == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(bytes), size);
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

Result<Connection> Connection::open(const std::string& path) {
  // Creates the file with mode 0600 if it is missing. SQLite gives its companion files the same
  // mode.
  if (!UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)).valid())
    return from_errno(path, errno);
  SLIME_TRY(keep_private(path));
  sqlite3* raw = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE, nullptr);
  Connection out(raw);
  if (result != SQLITE_OK) return error_of(raw, result).with_context(path);
  sqlite3_extended_result_codes(raw, 1);
  return out;
}

Result<Statement> Connection::prepare(std::string_view sql) {
  sqlite3_stmt* raw = nullptr;
  const int result = sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  if (result != SQLITE_OK) return error_of(connection_.get(), result);
  return Statement(raw);
}

Status Connection::run(const char* sql) {
  const int result = sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? Status() : error_of(connection_.get(), result);
}

Result<std::int64_t> Connection::integer(std::string_view sql) {
  Result<Statement> statement = prepare(sql);
  if (!statement) return statement.error();
  const Result<bool> row = statement->step();
  if (!row) return row.error();
  return *row ? statement->integer(0) : 0;
}

Result<std::string> Connection::text(std::string_view sql) {
  Result<Statement> statement = prepare(sql);
  if (!statement) return statement.error();
  const Result<bool> row = statement->step();
  if (!row) return row.error();
  return *row ? statement->text(0) : std::string();
}

}  // namespace slime::ctrl::sqlite
