#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/str.h"
#include "base/unique_fd.h"
#include "tests/ctrl/every_route.h"
#include "tests/ctrl/redis_server.h"
#include "tests/support/eventually.h"
#include "tests/support/folder.h"

// GET /readyz: whether changes could be stored, also while none is made.
namespace slime::ctrl::ready_test {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using slime::test::Folder;
using test::Answer;
using test::Asker;
using test::get;
using test::has;
using test::HttpServer;
using test::RedisServer;

ServerOptions with_store(std::string store) {
  ServerOptions options = test::small_server();
  options.store = std::move(store);
  options.registry.epoch = wall_clock_epoch();
  return options;
}

class Readiness {
 public:
  explicit Readiness(std::string store) : http_(with_store(std::move(store))), ask_(http_.server->port()) {}
  Answer operator()() { return ask_(get("/readyz")); }
  bool becomes(int status) {
    return eventually([&] { return (*this)().status == status; });
  }
  // Returns the time until the status.
  Nanos time_to(int status) {
    const TimePoint start = steady_clock().now();
    REQUIRE(becomes(status));
    return steady_clock().now() - start;
  }
  // Returns the metric of the same state.
  std::string gauge() {
    const std::string text = ask_(get("/metrics")).body;
    const std::size_t at = text.find("\nnanoctrl_ready ");
    return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  }
  Answer health() { return ask_(get("/healthz")); }

 private:
  HttpServer http_;
  Asker ask_;
};

const Nanos kSoon = slime::test::patient(2s);

TEST_CASE("a server is ready without a token, and tells nothing of itself") {
  ServerOptions options = test::small_server();
  options.api.require_token = true;
  const HttpServer server(options);
  const Answer answer = Asker(server.server->port())(get("/readyz"));
  CHECK(answer.status == 200);
  CHECK(answer.body == R"({"status":"ready"})");
}

TEST_CASE("a cut Redis is not ready, and a Redis that is back is ready within 2 s") {
  RedisServer redis(test::kDurable);
  Readiness ready(redis.url());
  CHECK(ready().status == 200);
  CHECK(ready.gauge() == "nanoctrl_ready 1");
  redis.kill();
  REQUIRE(ready.becomes(503));
  const Answer refused = ready();
  CHECK(has(refused.body, "the store cannot be written"));
  CHECK_FALSE(has(refused.body, std::to_string(redis.port())));  // public, so it does not name the
                                                                 // store
  CHECK(ready.gauge() == "nanoctrl_ready 0");
  CHECK(ready.health().status == 200);
  redis.start();
  CHECK(ready.time_to(200) < kSoon);
  CHECK(ready.gauge() == "nanoctrl_ready 1");
}

TEST_CASE("a Redis that hangs is not ready, and is ready within 2 s after it goes on") {
  RedisServer redis;
  Readiness ready(redis.url());
  REQUIRE(ready().status == 200);
  redis.stop();
  REQUIRE(ready.becomes(503));
  redis.resume();
  CHECK(ready.time_to(200) < kSoon);
}

TEST_CASE("a Redis that refuses to write is not ready, also without changes") {
  RedisServer redis;
  Readiness ready(redis.url());
  REQUIRE(ready().status == 200);
  redis.command({"CONFIG", "SET", "maxmemory", "1"});
  REQUIRE(ready.becomes(503));
  redis.command({"CONFIG", "SET", "maxmemory", "0"});
  CHECK(ready.time_to(200) < kSoon);
}

// A file system of 8 MiB. Needs permission to mount.
class SmallDisk {
 public:
  SmallDisk() : mounted_(::mount("tmpfs", path().c_str(), "tmpfs", 0, "size=8m,mode=0700") == 0) {}
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) ::umount2(path().c_str(), MNT_DETACH);
  }
  [[nodiscard]] bool mounted() const { return mounted_; }
  [[nodiscard]] std::string path() const { return folder_.path().string(); }
  void fill() const {
    const UniqueFd fd(::open(filler().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    REQUIRE(fd.valid());
    const std::array<char, 4096> zeros{};
    while (::write(fd.get(), zeros.data(), zeros.size()) > 0) {
    }
    REQUIRE(errno == ENOSPC);
  }
  void empty() const { REQUIRE(::unlink(filler().c_str()) == 0); }

 private:
  [[nodiscard]] std::string filler() const { return str(path(), "/filler"); }
  const Folder folder_;
  const bool mounted_;
};

TEST_CASE("a full disk is not ready, also without changes, and one with room is within 2 s") {
  const SmallDisk disk;
  if (!disk.mounted()) {
    MESSAGE("skipped: this process may not mount a file system; the next test limits files instead");
    return;
  }
  Readiness ready(str("sqlite:", disk.path(), "/registry.db"));
  CHECK(ready().status == 200);
  disk.fill();
  REQUIRE(ready.becomes(503));
  CHECK(has(ready().body, "the store cannot be written"));
  CHECK_FALSE(has(ready().body, "registry.db"));
  CHECK(ready.gauge() == "nanoctrl_ready 0");
  CHECK(ready.health().status == 200);
  disk.empty();
  CHECK(ready.time_to(200) < kSoon);
  CHECK(ready.gauge() == "nanoctrl_ready 1");
}

TEST_CASE("a change that a full disk refused leaves it not ready until it is kept") {
  const Folder folder;
  HttpServer server(with_store(str("sqlite:", folder.file("registry.db"))));
  Asker ask(server.server->port());
  REQUIRE(ask(get("/readyz")).status == 200);
  // No file may grow any more: exceeding the limit looks like a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit full = before;
  full.rlim_cur = 0;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  const int refused = ask(test::enroll("a")).status;
  const int full_answer = ask(get("/readyz")).status;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(refused == 503);
  CHECK(full_answer == 503);
  const TimePoint start = steady_clock().now();
  CHECK(eventually([&] { return ask(get("/readyz")).status == 200; }));
  CHECK(steady_clock().now() - start < kSoon);
  CHECK(ask(get("/v1/peers/a")).status == 200);
}

}  // namespace
}  // namespace slime::ctrl::ready_test
