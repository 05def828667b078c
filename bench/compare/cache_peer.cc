// Objects in and out of Redis or memcached over a local socket:
// redis|memcached SOCKET get|put SIZE INFLIGHT SECONDS
// A bare client, which writes and reads whole buffers: it measures the server, and adds little of
// what client libraries add.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <string_view>

#include "bench/compare/load.h"

namespace {

constexpr std::size_t kWorkingSet = 16 << 20;  // as `slime bench cache`
constexpr std::size_t kMostObjects = 4096;

int connect_to(const char* path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof address.sun_path) peer::fail("the socket's path is too long");
  std::strcpy(address.sun_path, path);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) peer::fail("cannot connect");
  return fd;
}

class Connection {
 public:
  explicit Connection(const char* path) : fd_(connect_to(path)), buffer_(1 << 20) {}
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) peer::fail("the server went away");
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  // Reads a line; returns it without "\r\n".
  std::string line() {
    std::string out;
    for (;;) {
      fill();
      const char* const from = buffer_.data() + first_;
      const auto* const end = static_cast<const char*>(std::memchr(from, '\n', last_ - first_));
      out.append(from, end == nullptr ? last_ - first_ : static_cast<std::size_t>(end - from));
      first_ = end == nullptr ? last_ : first_ + static_cast<std::size_t>(end - from) + 1;
      if (end != nullptr) break;
    }
    if (!out.empty() && out.back() == '\r') out.pop_back();
    return out;
  }
  // Reads bytes into memory of the caller, as an application does.
  void bytes(char* to, std::size_t count) {
    while (count > 0) {
      if (first_ == last_ && count >= buffer_.size() / 4) {  // straight to where they belong
        const ssize_t n = ::recv(fd_, to, count, 0);
        if (n <= 0) peer::fail("the server went away");
        to += n;
        count -= static_cast<std::size_t>(n);
        continue;
      }
      fill();
      const std::size_t part = std::min(count, last_ - first_);
      std::memcpy(to, buffer_.data() + first_, part);
      first_ += part;
      to += part;
      count -= part;
    }
  }

 private:
  void fill() {
    if (first_ < last_) return;
    const ssize_t n = ::recv(fd_, buffer_.data(), buffer_.size(), 0);
    if (n <= 0) peer::fail("the server went away");
    first_ = 0;
    last_ = static_cast<std::size_t>(n);
  }
  int fd_;
  std::vector<char> buffer_;
  std::size_t first_ = 0;
  std::size_t last_ = 0;
};

class Cache {
 public:
  Cache(bool redis, const char* path, std::size_t size)
      : redis_(redis), connection_(path), value_(size, 'x'), got_(size + 2) {
    const std::size_t count = std::clamp<std::size_t>(kWorkingSet / size, 1, kMostObjects);
    for (std::size_t i = 0; i < count; ++i) keys_.push_back("object-" + std::to_string(i));
    for (std::size_t i = 0; i < count; ++i) {
      start(true, i);
      finish(true);
    }
  }
  [[nodiscard]] std::size_t count() const { return keys_.size(); }

  void start(bool put, std::size_t i) {
    const std::string& key = keys_[i];
    const std::string length = std::to_string(value_.size());
    std::string request;
    if (redis_) {
      request = std::string("*") + (put ? "3\r\n$3\r\nSET\r\n$" : "2\r\n$3\r\nGET\r\n$") +
                std::to_string(key.size()) + "\r\n" + key + "\r\n" + (put ? "$" + length + "\r\n" : "");
    } else {
      request = put ? "set " + key + " 0 0 " + length + "\r\n" : "get " + key + "\r\n";
    }
    if (put) request += value_ + "\r\n";
    connection_.send(request);
  }
  void finish(bool put) {
    const std::string line = connection_.line();
    if (put) {
      if (line != (redis_ ? "+OK" : "STORED")) peer::fail("the server said: " + line);
      return;
    }
    const std::string length = std::to_string(value_.size());
    const bool found = redis_ ? line == "$" + length
                              : line.rfind("VALUE ", 0) == 0 && line.substr(line.rfind(' ') + 1) == length;
    if (!found) peer::fail("the server said: " + line);
    connection_.bytes(got_.data(), got_.size());
    if (std::memcmp(got_.data(), value_.data(), value_.size()) != 0) peer::fail("wrong data");
    if (!redis_ && connection_.line() != "END") peer::fail("no END");
  }

 private:
  const bool redis_;
  Connection connection_;
  std::string value_;
  std::vector<char> got_;
  std::vector<std::string> keys_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) peer::fail("redis|memcached SOCKET get|put SIZE INFLIGHT SECONDS");
  const peer::Load load = peer::load_of(arguments + 4);
  const bool put = std::string_view(arguments[3]) == "put";
  Cache cache(std::string_view(arguments[1]) == "redis", arguments[2], load.size);
  peer::Meter meter(load);
  std::deque<peer::Clock::time_point> started;
  std::size_t next = 0;
  const auto start = [&] {
    started.push_back(peer::Clock::now());
    cache.start(put, next);
    next = (next + 1) % cache.count();
  };
  for (std::size_t i = 0; i < load.inflight; ++i) start();
  for (bool more = true; more;) {
    cache.finish(put);
    more = meter.add(started.front());
    started.pop_front();
    if (more) start();
  }
  meter.print();
  return 0;
}
