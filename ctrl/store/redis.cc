#include "ctrl/store/redis.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/str.h"

namespace slime::ctrl::redis {
namespace {

constexpr std::size_t kReadBytes = 16 * 1024;

struct FreeCommand {
  void operator()(char* command) const noexcept { redisFreeCommand(command); }
};

// Converts Redis' error reply to a Status. The first word of `text` is the kind of error.
Status refused(std::string_view text) {
  constexpr std::array<std::string_view, 2> kWho = {"NOAUTH", "WRONGPASS"};
  const std::string_view word = text.substr(0, text.find(' '));
  Code code = Code::kUnavailable;
  if (std::find(kWho.begin(), kWho.end(), word) != kWho.end()) code = Code::kUnauthenticated;
  if (word == "NOPERM") code = Code::kPermissionDenied;
  return {code, str("Redis says: ", text)};
}

// hiredis limits the depth of replies.
Value to_value(const redisReply& reply) {
  Value out;
  switch (reply.type) {
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
      out.kind = Value::Kind::kText;
      out.text.assign(reply.str, reply.len);
      break;
    case REDIS_REPLY_INTEGER:
      out.kind = Value::Kind::kInteger;
      out.integer = reply.integer;
      break;
    case REDIS_REPLY_ARRAY:
      out.kind = Value::Kind::kArray;
      out.items.reserve(reply.elements);
      for (std::size_t i = 0; i < reply.elements; ++i) out.items.push_back(to_value(*reply.element[i]));
      break;
    default:
      break;
  }
  return out;
}

}  // namespace

void Connection::Free::operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }
void Connection::FreeReply::operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }

Result<Connection> Connection::open(const Address& address, Nanos timeout, Interrupt& interrupt) {
  Result<std::unique_ptr<Socket>> socket = Socket::open(address, timeout, interrupt);
  if (!socket) return socket.error();
  redisReader* const reader = redisReaderCreate();
  if (reader == nullptr) return Status(Code::kResourceExhausted, "no memory for a connection");
  Connection out(std::move(*socket), reader);
  if (Status status = out.sign_in(address); !status.ok()) return status;
  return out;
}

Status Connection::sign_in(const Address& address) {
  if (!address.password.empty()) {
    Arguments auth = {"AUTH"};
    if (!address.user.empty()) auth.emplace_back(address.user);
    auth.emplace_back(address.password);
    if (const Result<Value> reply = command(auth); !reply) {
      // Any error reply to AUTH counts as a wrong password: servers before version 6 do not send
      // the word WRONGPASS.
      const bool answered = reply.error().text().starts_with("Redis says");
      return answered ? Status(Code::kUnauthenticated, reply.error().text()) : reply.error();
    }
  }
  if (address.database != 0) {
    if (const Result<Value> reply = command({"SELECT", std::to_string(address.database)}); !reply)
      return reply.error();
  }
  return command({"PING"}).status();
}

Status Connection::send(const Arguments& arguments) {
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
  texts.reserve(arguments.size());
  sizes.reserve(arguments.size());
  for (const std::string_view argument : arguments) {
    texts.push_back(argument.data());
    sizes.push_back(argument.size());
  }
  char* raw = nullptr;
  const auto size =
      redisFormatCommandArgv(&raw, static_cast<int>(arguments.size()), texts.data(), sizes.data());
  if (size < 0) return {Code::kResourceExhausted, "no memory for a command"};
  const std::unique_ptr<char, FreeCommand> command(raw);
  unsent_.append(raw, static_cast<std::size_t>(size));
  return {};
}

Result<Value> Connection::receive() {
  SLIME_TRY(broken_);
  const auto reply = next_reply();
  if (!reply) return broken_ = reply.error();
  if ((*reply)->type == REDIS_REPLY_ERROR) return refused({(*reply)->str, (*reply)->len});
  return to_value(**reply);
}

Result<std::unique_ptr<redisReply, Connection::FreeReply>> Connection::next_reply() {
  if (!unsent_.empty()) SLIME_TRY(socket_->write(std::exchange(unsent_, {})));
  std::array<char, kReadBytes> bytes;
  while (true) {
    void* raw = nullptr;
    if (redisReaderGetReply(reader_.get(), &raw) != REDIS_OK)
      return Status(Code::kUnavailable, str("Redis does not speak its protocol: ", reader_->errstr));
    if (raw != nullptr) return std::unique_ptr<redisReply, FreeReply>(static_cast<redisReply*>(raw));
    const Result<std::size_t> size = socket_->read(bytes);
    if (!size) return size.error();
    if (redisReaderFeed(reader_.get(), bytes.data(), *size) != REDIS_OK)
      return Status(Code::kResourceExhausted, "no memory for a reply");
  }
}

Result<Value> Connection::command(const Arguments& arguments) {
  SLIME_TRY(send(arguments));
  return receive();
}

void block_sigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace slime::ctrl::redis
