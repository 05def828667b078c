#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

// SQLite's C interface with RAII and Status. Thread: one at a time for each connection.
namespace slime::ctrl::sqlite {

class Statement {
 public:
  Statement(Statement&&) noexcept = default;
  Statement& operator=(Statement&&) noexcept = default;

  // Parameters count from 1, columns from 0, as in SQLite.
  void bind(int parameter, std::string_view text);
  // Returns true if there is a row. After false or an error, the statement accepts new parameters.
  Result<bool> step();
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] std::int64_t integer(int column) const;

 private:
  friend class Connection;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const noexcept;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Connection {
 public:
  // Creates the file if it is missing, readable by its owner only. Restricts a file that others may
  // read, and logs a warning; kPermissionDenied if that fails, or when the file is another user's.
  // Does not wait for locks. kUnavailable; kPermissionDenied; kCorrupt (not a database).
  static Result<Connection> open(const std::string& path);
  Connection(Connection&&) noexcept = default;
  Connection& operator=(Connection&&) noexcept = default;

  Result<Statement> prepare(std::string_view sql);
  // Runs statements whose rows do not matter.
  Status run(const char* sql);
  Result<std::int64_t> integer(std::string_view sql);  // the first column of the first row
  Result<std::string> text(std::string_view sql);

 private:
  struct Close {
    void operator()(sqlite3* connection) const noexcept;
  };
  explicit Connection(sqlite3* connection) : connection_(connection) {}
  std::unique_ptr<sqlite3, Close> connection_;
};

}  // namespace slime::ctrl::sqlite
