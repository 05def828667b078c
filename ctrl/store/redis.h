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

// Redis with its protocol from hiredis and our own sockets, which speak TLS: the hiredis that distributions
// of today have does not. What a server says with an error reply becomes a Status: kUnauthenticated or
// kPermissionDenied for who may not, else kUnavailable with the server's text.
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

// One connection, of one `interrupt` at a time. The thread has SIGPIPE blocked. Thread: one at a time.
class Connection {
 public:
  // Ready for commands: it has a name and password accepted, and the database chosen. Every wait of it, and
  // of later calls, ends after `timeout`. `interrupt` outlives it.
  static Result<Connection> open(const Address& address, Nanos timeout, Interrupt& interrupt);

  Result<Value> command(const Arguments& arguments);
  // Several commands in one go: send each, then receive as many replies. The first receive() sends them.
  Status send(const Arguments& arguments);
  // After one that did not come, none does: what comes later would be taken for another's.
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

// A broken connection is a failed write, never a signal. For threads that have connections.
void block_sigpipe();

}  // namespace slime::ctrl::redis
