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

// A Redis client. hiredis encodes and parses the protocol. Class Socket sends and receives the
// bytes, because hiredis in current distributions has no TLS. An error reply becomes a Status:
// kUnauthenticated or kPermissionDenied if rights are missing, else kUnavailable with the server's
// text.
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

// A connection to Redis. An Interrupt serves only one connection at a time. Thread: one at a time,
// with SIGPIPE blocked.
class Connection {
 public:
  // Connects, authenticates and selects the database. `timeout` limits each wait for Redis, also in
  // later calls. `interrupt` outlives this connection.
  static Result<Connection> open(const Address& address, Nanos timeout, Interrupt& interrupt);

  Result<Value> command(const Arguments& arguments);
  // Sends several commands at once: call send() for each command, then receive() for each reply.
  // The first receive() writes all commands to the socket.
  Status send(const Arguments& arguments);
  // Returns the next reply. After an error, all later calls fail, since a late reply could be taken
  // for the reply to another command.
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

// Blocks SIGPIPE in the calling thread, so that a write to a broken connection fails instead of
// ending the process. Call it in each thread that uses connections.
void block_sigpipe();

}  // namespace slime::ctrl::redis
