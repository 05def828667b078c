#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/str.h"
#include "base/unique_fd.h"
#include "ctrl/store/redis.h"
#include "tests/support/eventually.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace slime::ctrl::test {

inline std::string redis_server_path() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = str(folder, "/redis-server");
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  FAIL("the program redis-server is not here; scripts/install_deps.sh --test installs it");
  return {};
}

// Redis syncs each write to disk before it replies.
inline const std::vector<std::string> kDurable = {"--appendonly", "yes", "--appendfsync", "always"};

// A Redis of this test, on a free port of 127.0.0.1. Thread: one.
class RedisServer {
 public:
  // `tls`: URL parameters that make the server trusted ("ca=FILE"); empty: without TLS.
  explicit RedisServer(std::vector<std::string> options = {}, std::string tls = {})
      : options_(std::move(options)), tls_(std::move(tls)) {
    // Retry: another program may take the free port first.
    for (int attempt = 0; attempt < 10 && !process_; ++attempt) {
      port_ = free_port();
      start();
    }
    REQUIRE(process_);
  }

  // Starts the server, or starts it again on the same port and with the same files.
  void start() {
    std::vector<std::string> argv = {
        redis_server_path(),       "--bind", "127.0.0.1", "--dir", folder_.path().string(), "--logfile",
        folder_.file("redis.log"), "--save", ""};
    argv.insert(argv.end(), {tls_.empty() ? "--port" : "--tls-port", std::to_string(port_)});
    if (!tls_.empty()) argv.insert(argv.end(), {"--port", "0"});
    argv.insert(argv.end(), options_.begin(), options_.end());
    Result<slime::test::Process> spawned = slime::test::Process::spawn(argv);
    REQUIRE(spawned);
    process_.emplace(std::move(*spawned));
    const bool ready = slime::test::eventually([this] {
      const Result<redis::Value> reply = try_command({"PING"});
      // NOAUTH also means that the server is up.
      return reply || reply.error().text().find("NOAUTH") != std::string::npos ||
             process_->wait(Nanos::zero());
    });
    if (!ready || process_->wait(Nanos::zero())) process_.reset();
  }
  void kill() {
    REQUIRE(process_->kill().ok());
    REQUIRE(process_->wait(slime::test::patient(std::chrono::seconds(30))));
  }
  void stop() { REQUIRE(process_->stop().ok()); }
  void resume() { REQUIRE(process_->resume().ok()); }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string url(const std::string& prefix = "slime") const {
    return tls_.empty() ? str("redis://127.0.0.1:", port_, "?prefix=", prefix)
                        : str("rediss://127.0.0.1:", port_, "?prefix=", prefix, "&", tls_);
  }
  redis::Value command(const redis::Arguments& arguments) {
    Result<redis::Value> reply = try_command(arguments);
    REQUIRE_MESSAGE(reply, reply.status().to_string());
    return std::move(*reply);
  }

 private:
  Result<redis::Value> try_command(const redis::Arguments& arguments) {
    redis::Interrupt interrupt;
    Result<redis::Address> address = redis::parse_url(url());
    REQUIRE(address);
    Result<redis::Connection> connection =
        redis::Connection::open(*address, slime::test::patient(std::chrono::seconds(10)), interrupt);
    if (!connection) return connection.error();
    return connection->command(arguments);
  }
  static std::uint16_t free_port() {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    return ntohs(address.sin_port);
  }

  const slime::test::Folder folder_;
  const std::vector<std::string> options_;
  const std::string tls_;
  std::uint16_t port_ = 0;
  std::optional<slime::test::Process> process_;
};

}  // namespace slime::ctrl::test
