#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/daemon.h"
#include "base/str.h"
#include "tests/support/folder.h"

namespace slime::daemon {
namespace {

using namespace std::chrono_literals;

// A directory of its own; sets SLIME_RUNTIME_DIR while it lives.
struct Directory : test::Folder {
  Directory() { ::setenv("SLIME_RUNTIME_DIR", path().c_str(), 1); }
  ~Directory() { ::unsetenv("SLIME_RUNTIME_DIR"); }
  std::string log() const { return file("log"); }
  std::string pid_file() const { return file("pid"); }
};

// A background process that holds the pid file until it is told to stop; `deaf` ones must be
// killed.
Result<std::string> start_holder(const Directory& dir, bool deaf) {
  return start_in_background({.log_path = dir.log(), .wait = 60s}, [&](ReadyPipe& ready) {
    block_stop_signals();
    const Result<PidFile> file = PidFile::acquire(dir.pid_file(), "some info");
    if (!file) {
      ready.failed(file.error());
      return 1;
    }
    ready.ready("hello");
    while (deaf) ::pause();
    wait_for_stop_signal();
    return 0;
  });
}

pid_t holder(const Directory& dir) {
  const auto running = find_running(dir.pid_file());
  return running && *running ? (*running)->pid : 0;
}

TEST_CASE("a background process says when it is ready, is found by its pid file, and stops") {
  const Directory dir;
  const Result<std::string> told = start_holder(dir, false);
  REQUIRE_MESSAGE(told, told.status().to_string());
  CHECK(*told == "hello");
  const auto running = find_running(dir.pid_file());
  REQUIRE(running);
  REQUIRE(*running);
  CHECK((*running)->info == "some info");
  const Result<StopOutcome> stopped = stop(dir.pid_file(), 60s, false);
  REQUIRE(stopped);
  CHECK(*stopped == StopOutcome::kStopped);
  CHECK(::waitpid((*running)->pid, nullptr, 0) == (*running)->pid);
  CHECK(holder(dir) == 0);
  CHECK(::access(dir.pid_file().c_str(), F_OK) != 0);
  CHECK(*stop(dir.pid_file(), 1s, true) == StopOutcome::kNotRunning);
}

TEST_CASE("a second holder is refused and the first is unharmed") {
  const Directory dir;
  REQUIRE(start_holder(dir, false));
  const pid_t first = holder(dir);
  CHECK(start_holder(dir, false).error().code() == Code::kAlreadyExists);
  CHECK(holder(dir) == first);
  CHECK(stop(dir.pid_file(), 60s, false));
  ::waitpid(first, nullptr, 0);
}

TEST_CASE("one that ignores SIGTERM is killed only with force") {
  const Directory dir;
  REQUIRE(start_holder(dir, true));
  const pid_t pid = holder(dir);
  CHECK(stop(dir.pid_file(), 50ms, false).error().code() == Code::kDeadlineExceeded);
  CHECK(holder(dir) == pid);
  CHECK(*stop(dir.pid_file(), 50ms, true) == StopOutcome::kKilled);
  ::waitpid(pid, nullptr, 0);
  // What it left behind holds nothing: the next one starts.
  REQUIRE(start_holder(dir, false));
  const pid_t next = holder(dir);
  CHECK(next != pid);
  CHECK(stop(dir.pid_file(), 60s, false));
  ::waitpid(next, nullptr, 0);
}

TEST_CASE("a start that fails, dies or hangs is told as such") {
  const Directory dir;
  const auto start = [&](Nanos wait, const std::function<int(ReadyPipe&)>& body) {
    return start_in_background({.log_path = dir.log(), .wait = wait}, body).error();
  };
  const Status refused = start(60s, [](ReadyPipe& ready) {
    ready.failed(Status(Code::kPermissionDenied, "no key"));
    return 1;
  });
  CHECK(refused.code() == Code::kPermissionDenied);
  CHECK(refused.text() == "no key");
  const Status died = start(60s, [](ReadyPipe&) {
    ::_exit(7);
    return 0;
  });
  CHECK(died.code() == Code::kUnavailable);
  CHECK(died.text().find("exit 7") != std::string::npos);
  CHECK(died.text().find(dir.log()) != std::string::npos);
  const Status hung = start(50ms, [](ReadyPipe&) {
    while (true) ::pause();
    return 0;
  });
  CHECK(hung.code() == Code::kDeadlineExceeded);
  CHECK(start_in_background({.log_path = "relative"}, [](ReadyPipe&) { return 0; }).error().code() ==
        Code::kInvalidArgument);
}

TEST_CASE("the runtime directory is made for its owner alone, and refused otherwise") {
  const Directory dir;
  CHECK(*runtime_dir() == dir.path());
  const std::string inner = dir.file("inner");
  ::setenv("SLIME_RUNTIME_DIR", inner.c_str(), 1);
  CHECK(*runtime_dir() == inner);
  struct stat info {};
  REQUIRE(::stat(inner.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  REQUIRE(::chmod(inner.c_str(), 0750) == 0);
  CHECK(runtime_dir().error().code() == Code::kPermissionDenied);
  ::rmdir(inner.c_str());
  REQUIRE(::symlink(dir.path().c_str(), inner.c_str()) == 0);
  CHECK(runtime_dir().error().code() == Code::kPermissionDenied);
  ::unlink(inner.c_str());
  ::setenv("SLIME_RUNTIME_DIR", dir.file("no/such").c_str(), 1);
  CHECK(runtime_dir().error().text().find("SLIME_RUNTIME_DIR") != std::string::npos);
}

}  // namespace
}  // namespace slime::daemon
