// Objects in and out of Redis or memcached over a local socket, one at a time:
// redis|memcached SOCKET get|put SIZE SECONDS
// A bare client, which writes and reads whole messages of known sizes: it measures the server, and
// adds little of what client libraries add.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
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

class Cache {
 public:
  Cache(bool redis, const char* path, std::size_t size)
      : redis_(redis), fd_(connect_to(path)), value_(size, 'x') {
    const std::size_t count = std::clamp<std::size_t>(kWorkingSet / size, 1, kMostObjects);
    for (std::size_t i = 0; i < count; ++i) keys_.push_back("object-" + std::to_string(i));
    for (std::size_t i = 0; i < count; ++i) put(i);
  }
  [[nodiscard]] std::size_t count() const { return keys_.size(); }

  void put(std::size_t i) {
    const std::string& key = keys_[i];
    const std::string head = redis_ ? "*3\r\n$3\r\nSET\r\n$" + std::to_string(key.size()) + "\r\n" + key +
                                          "\r\n$" + length_ + "\r\n"
                                    : "set " + key + " 0 0 " + length_ + "\r\n";
    send(head + value_ + "\r\n");
    expect(redis_ ? "+OK\r\n" : "STORED\r\n");
  }
  void get(std::size_t i) {
    const std::string& key = keys_[i];
    send(redis_ ? "*2\r\n$3\r\nGET\r\n$" + std::to_string(key.size()) + "\r\n" + key + "\r\n"
                : "get " + key + "\r\n");
    expect(redis_ ? "$" + length_ + "\r\n" : "VALUE " + key + " 0 " + length_ + "\r\n", value_,
           redis_ ? "\r\n" : "\r\nEND\r\n");
  }

 private:
  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) peer::fail("the server went away");
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  // Reads an answer, and compares it with `head`, `value` and `tail`. Errors differ in the head.
  void expect(std::string_view head, std::string_view value = {}, std::string_view tail = {}) {
    got_.resize(head.size() + value.size() + tail.size());
    for (std::size_t done = 0; done < got_.size();) {
      const ssize_t n = ::recv(fd_, got_.data() + done, got_.size() - done, 0);
      if (n <= 0) peer::fail("the server went away");
      done += static_cast<std::size_t>(n);
      const std::string_view first(got_.data(), std::min(done, head.size()));
      if (first != head.substr(0, first.size())) peer::fail("the server said: " + std::string(first));
    }
    const std::string_view rest = std::string_view(got_).substr(head.size());
    if (rest.substr(0, value.size()) != value || rest.substr(value.size()) != tail) peer::fail("wrong data");
  }

  const bool redis_;
  const int fd_;
  const std::string value_;
  const std::string length_ = std::to_string(value_.size());
  std::string got_;
  std::vector<std::string> keys_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 6) peer::fail("redis|memcached SOCKET get|put SIZE SECONDS");
  const bool put = std::string_view(arguments[3]) == "put";
  peer::Load load;
  load.size = std::strtoull(arguments[4], nullptr, 10);
  load.seconds = std::strtod(arguments[5], nullptr);
  Cache cache(std::string_view(arguments[1]) == "redis", arguments[2], load.size);
  peer::Meter meter(load);
  bool more = true;
  for (std::size_t i = 0; more; i = (i + 1) % cache.count()) {
    const auto started = peer::Clock::now();
    put ? cache.put(i) : cache.get(i);
    more = meter.add(started);
  }
  meter.print();
  return 0;
}
