#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

// SQLite's C interface, wrapped in classes that free its objects and return Status. Thread: one at
// a time for each Connection.
namespace slime::ctrl::sqlite {

class Statement {
 public:
  Statement(Statement&&) noexcept = default;
  Statement& operator=(Statement&&) noexcept = default;

  // Sets a parameter. Parameters are numbered from 1, columns from 0, as in SQLite.
  void bind(int parameter, std::string_view text);
  // Moves to the next row; returns false after the last row. After false or an error, the statement
  // can be used again with new parameters.
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
  // Opens the database file, and creates it if it is missing. Only the owner may access it:
  // restricts the mode of an existing file, with a warning. Does not wait for locks. kUnavailable;
  // kPermissionDenied, also if the mode cannot be restricted; kCorrupt if the file is not a
  // database.
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
