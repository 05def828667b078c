// A disk that does not answer, as a network disk may: the file's fsync() hangs until the test
// releases it.
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "ctrl/store/engine.h"
#include "tests/ctrl/samples.h"
#include "tests/support/eventually.h"
#include "tests/support/folder.h"

namespace {
std::atomic<bool> g_stalled{false};
void pass() { g_stalled.wait(true); }
}  // namespace

// SQLite calls these instead of the C library's functions.
extern "C" int fsync(int fd) {
  pass();
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" int fdatasync(int fd) {
  pass();
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

namespace slime::ctrl::store_stall_test {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using test::registration;

TEST_CASE("while the disk does not answer changes are refused in bounded time, and heartbeats are not") {
  const slime::test::Folder folder;
  const Result<std::unique_ptr<Engine>> opened =
      open_engine("sqlite:" + folder.file("registry.db"), {.ttl = 60s, .epoch = 1}, steady_clock());
  REQUIRE_MESSAGE(opened, opened.status().to_string());
  Engine& engine = **opened;
  const auto enroll = [&](const char* name, std::uint8_t number) {
    return engine.submit(RegisterCommand{registration(name, number), 0, Proof::trusted()});
  };
  const Outcome first = enroll("a", 1);
  REQUIRE(first.status.ok());

  g_stalled = true;
  const Outcome waited = enroll("b", 2);
  const Outcome refused = enroll("c", 3);
  const Outcome beat =
      engine.submit(HeartbeatCommand{"default", "a", first.lease.incarnation, Proof::trusted()});
  const Status writable = engine.writable();
  g_stalled = false;
  g_stalled.notify_all();
  CHECK(waited.status.code() == Code::kUnavailable);
  CHECK(waited.status.maybe_executed());
  CHECK(refused.status.code() == Code::kUnavailable);
  CHECK_FALSE(refused.status.maybe_executed());
  CHECK(beat.status.ok());
  CHECK(writable.code() == Code::kUnavailable);

  CHECK(eventually([&] { return enroll("d", 4).status.ok(); }));
  CHECK(engine.writable().ok());
  engine.read([](const Registry& registry) {
    CHECK(registry.find("default", "b").has_value());
    CHECK_FALSE(registry.find("default", "c").has_value());
  });
}

TEST_CASE("a disk that does not answer is not ready, and delays a caller for a second at most") {
  const slime::test::Folder folder;
  const Result<std::unique_ptr<Engine>> opened =
      open_engine("sqlite:" + folder.file("registry.db"), {.ttl = 60s, .epoch = 1}, steady_clock());
  REQUIRE_MESSAGE(opened, opened.status().to_string());
  Engine& engine = **opened;
  CHECK(engine.ready().ok());

  g_stalled = true;
  CHECK(eventually([&] { return !engine.ready().ok(); }));  // an earlier result is valid for a
                                                            // second
  const TimePoint start = steady_clock().now();
  for (int i = 0; i < 100; ++i) CHECK(engine.ready().code() == Code::kUnavailable);
  const Nanos took = steady_clock().now() - start;
  CHECK(engine.writable().ok());  // no change was tried
  g_stalled = false;
  g_stalled.notify_all();
  CHECK(took < kReadyWait);  // the first call used up the wait; the others did not wait
  CHECK(eventually([&] { return engine.ready().ok(); }));
}

}  // namespace
}  // namespace slime::ctrl::store_stall_test
