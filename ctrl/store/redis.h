#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/store/redis_socket.h"
#include "ctrl/store/redis_url.h"

struct redisReader;
struct redisReply;

// Redis, with the protocol parser of hiredis and our own sockets, which support TLS: the hiredis of
// current distributions does not. An error reply becomes a Status: kUnauthenticated or
// kPermissionDenied for missing rights, else kUnavailable with the server's text.
namespace slime::ctrl::redis {

struct Value {
  enum class Kind : std::uint8_t { kNil, kText, kInteger, kArray };
  Kind kind = Kind::kNil;
  std::string text;
  std::int64_t integer = 0;
  std::vector<Value> items;
  [[nodiscard]] bool nil() const { return kind == Kind::kNil; }
};

using Arguments = std::vector<std::string_view>;

// One connection. An `interrupt` serves one connection at a time. Thread: one at a time, with
// SIGPIPE blocked.
class Connection {
 public:
  // Opens a connection that is ready for commands: authenticated, database selected. Every wait,
  // also of later calls, ends after `timeout`. `interrupt` outlives this.
  static Result<Connection> open(const Address& address, Nanos timeout, Interrupt& interrupt);

  Result<Value> command(const Arguments& arguments);
  // Pipelining: send() each command, then receive() as many replies. The first receive() sends them
  // all.
  Status send(const Arguments& arguments);
  // After an error, all later calls fail: a late reply would be taken for another command's.
  Result<Value> receive();

 private:
  struct Free {
    void operator()(redisReader* reader) const noexcept;
  };
  struct FreeReply {
    void operator()(redisReply* reply) const noexcept;
  };
  Connection(std::unique_ptr<Socket> socket, redisReader* reader)
      : socket_(std::move(socket)), reader_(reader) {}
  Status sign_in(const Address& address);
  Result<std::unique_ptr<redisReply, FreeReply>> next_reply();

  std::unique_ptr<Socket> socket_;
  std::unique_ptr<redisReader, Free> reader_;
  std::string unsent_;
  Status broken_;
};

// Blocks SIGPIPE in this thread, so that a broken connection is a failed write. Call in each thread
// that uses connections.
void block_sigpipe();

}  // namespace slime::ctrl::redis
