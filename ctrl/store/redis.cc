#include "ctrl/store/redis.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <utility>

#include "base/str.h"
#include "ctrl/types.h"
#include "ctrl/url.h"

namespace slime::ctrl::redis {
namespace {

constexpr std::string_view kScheme = "redis://";

struct FreeReply {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};

timeval to_timeval(Nanos span) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(span).count();
  return {static_cast<time_t>(micros / 1'000'000), static_cast<suseconds_t>(micros % 1'000'000)};
}

// Its first word says which error a reply is.
Status refused(std::string_view text) {
  constexpr std::array<std::string_view, 2> kWho = {"NOAUTH", "WRONGPASS"};
  const std::string_view word = text.substr(0, text.find(' '));
  Code code = Code::kUnavailable;
  if (std::find(kWho.begin(), kWho.end(), word) != kWho.end()) code = Code::kUnauthenticated;
  if (word == "NOPERM") code = Code::kPermissionDenied;
  return {code, str("Redis says: ", text)};
}

// The depth of replies is bounded by the library.
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

Status bad_url(std::string_view what) {
  return {Code::kInvalidArgument,
          str("a store in Redis is redis://[[user]:password@]host:port[/db][?prefix=NAME]: ", what)};
}

Status parse_sign_in(std::string_view text, Address& out) {
  const std::size_t colon = text.find(':');
  const std::optional<std::string> user = percent_decode(text.substr(0, colon));
  const std::optional<std::string> password =
      percent_decode(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1));
  if (!user || !password) return bad_url("the password has a bad % escape");
  if (password->empty()) return bad_url("there is no password before the '@'");
  out.user = *user;
  out.password = *password;
  return {};
}

}  // namespace

Result<Address> parse_url(std::string_view url) {
  if (!url.starts_with(kScheme)) return bad_url("it begins otherwise");
  std::string_view rest = url.substr(kScheme.size());
  Address out;
  if (const std::size_t mark = rest.find('?'); mark != std::string_view::npos) {
    constexpr std::string_view kPrefix = "prefix=";
    const std::string_view query = rest.substr(mark + 1);
    if (!query.starts_with(kPrefix)) return bad_url("the only parameter is 'prefix'");
    out.prefix = std::string(query.substr(kPrefix.size()));
    SLIME_TRY(check_name("prefix", out.prefix));
    rest = rest.substr(0, mark);
  }
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    SLIME_TRY(parse_sign_in(rest.substr(0, at), out));
    rest = rest.substr(at + 1);
  }
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view number = rest.substr(slash + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.database);
    if (!number.empty() && (error != std::errc() || end != number.data() + number.size()))
      return bad_url("the database is not a number");
    rest = rest.substr(0, slash);
  }
  const std::optional<HostPort> host = parse_host_port(rest);
  if (!host) return bad_url("there is no host:port");
  out.host = host->host;
  out.port = host->port;
  return out;
}

std::string to_string(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return str(kScheme, v6 ? "[" : "", address.host, v6 ? "]" : "", ":", address.port, "/", address.database,
             "?prefix=", address.prefix);
}

void Interrupt::kick() {
  const std::lock_guard lock(mutex_);
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

void Interrupt::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

void Interrupt::attach(int fd) {
  const std::lock_guard lock(mutex_);
  fd_ = fd;
  if (cancelled_) ::shutdown(fd_, SHUT_RDWR);
}

void Interrupt::detach() {
  const std::lock_guard lock(mutex_);
  fd_ = -1;
}

void Connection::Close::operator()(redisContext* context) const noexcept {
  interrupt->detach();
  redisFree(context);
}

Result<Connection> Connection::open(const Address& address, Nanos timeout, Interrupt& interrupt) {
  redisContext* raw = redisConnectWithTimeout(address.host.c_str(), address.port, to_timeval(timeout));
  if (raw == nullptr) return Status(Code::kResourceExhausted, "no memory for a connection");
  Connection out(raw, interrupt);
  if (raw->err != 0) return out.broken();
  interrupt.attach(raw->fd);
  if (redisSetTimeout(raw, to_timeval(timeout)) != REDIS_OK) return out.broken();
  if (Status status = out.sign_in(address); !status.ok()) return status;
  return out;
}

Status Connection::sign_in(const Address& address) {
  if (!address.password.empty()) {
    Arguments auth = {"AUTH"};
    if (!address.user.empty()) auth.emplace_back(address.user);
    auth.emplace_back(address.password);
    if (const Result<Value> reply = command(auth); !reply) {
      // Servers before version 6 have no word of their own for it.
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

Status Connection::broken() const {
  const bool late = context_->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK);
  return {Code::kUnavailable, late ? "it does not answer" : context_->errstr};
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
  const int result =
      redisAppendCommandArgv(context_.get(), static_cast<int>(arguments.size()), texts.data(), sizes.data());
  return result == REDIS_OK ? Status() : broken();
}

Result<Value> Connection::receive() {
  void* raw = nullptr;
  if (redisGetReply(context_.get(), &raw) != REDIS_OK) return broken();
  const std::unique_ptr<redisReply, FreeReply> reply(static_cast<redisReply*>(raw));
  if (reply->type == REDIS_REPLY_ERROR) return refused({reply->str, reply->len});
  return to_value(*reply);
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
