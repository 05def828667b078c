#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

struct redisContext;

// The hiredis C interface with owners and Status. What a server says with an error reply becomes a Status:
// kUnauthenticated or kPermissionDenied for who may not, else kUnavailable with the server's text.
namespace slime::ctrl::redis {

struct Address {
  std::string host;
  std::uint16_t port = 0;
  std::string user;      // may be empty
  std::string password;  // empty: none
  std::uint32_t database = 0;
  std::string prefix = "slime";  // of the names of all keys
};
// "redis://[[user]:password@]host:port[/db][?prefix=NAME]"; user and password are percent-encoded.
Result<Address> parse_url(std::string_view url);
std::string to_string(const Address& address);  // without user and password

struct Value {
  enum class Kind : std::uint8_t { kNil, kText, kInteger, kArray };
  Kind kind = Kind::kNil;
  std::string text;
  std::int64_t integer = 0;
  std::vector<Value> items;
  [[nodiscard]] bool nil() const { return kind == Kind::kNil; }
};

// Ends what a connection waits for, from another thread. Thread: any.
class Interrupt {
 public:
  // The connection that there is now fails, or none.
  void kick();
  // So does each later one.
  void cancel();

 private:
  friend class Connection;
  void attach(int fd);
  void detach();
  std::mutex mutex_;
  int fd_ = -1;
  bool cancelled_ = false;
};

using Arguments = std::vector<std::string_view>;

// One connection, of one `interrupt` at a time. The thread has SIGPIPE blocked. Thread: one at a time.
class Connection {
 public:
  // Ready for commands: it has a name and password accepted, and the database chosen. Every wait of it, and
  // of later calls, ends after `timeout`. `interrupt` outlives it.
  static Result<Connection> open(const Address& address, Nanos timeout, Interrupt& interrupt);

  Result<Value> command(const Arguments& arguments);
  // Several commands in one go: send each, then receive as many replies.
  Status send(const Arguments& arguments);
  Result<Value> receive();

 private:
  struct Close {
    Interrupt* interrupt = nullptr;
    void operator()(redisContext* context) const noexcept;
  };
  Connection(redisContext* context, Interrupt& interrupt) : context_(context, Close{&interrupt}) {}
  [[nodiscard]] Status broken() const;
  Status sign_in(const Address& address);

  std::unique_ptr<redisContext, Close> context_;
};

// A broken connection is a failed write, never a signal. For threads that have connections.
void block_sigpipe();

}  // namespace slime::ctrl::redis
