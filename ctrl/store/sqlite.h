#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

// SQLite's C interface with owners and Status. Thread: one at a time for each connection.
namespace slime::ctrl::sqlite {

class Statement {
 public:
  Statement(Statement&&) noexcept = default;
  Statement& operator=(Statement&&) noexcept = default;

  // Parameters and columns: from 1, and from 0, as SQLite counts them.
  void bind(int parameter, std::string_view text);
  // True: there is a row. After false, or an error, it is ready for new parameters.
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
  // Makes the file when it is missing, readable by its owner only. One that others may read is made so, with
  // a warning in the log; kPermissionDenied where that fails, or when it is another user's. Waits for
  // nobody's lock. kUnavailable, kPermissionDenied, kCorrupt (not a database).
  static Result<Connection> open(const std::string& path);
  Connection(Connection&&) noexcept = default;
  Connection& operator=(Connection&&) noexcept = default;

  Result<Statement> prepare(std::string_view sql);
  // Statements without rows of interest.
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
