// Processes that are asked by signal what they are doing, say it, and go on.
#include <doctest/doctest.h>
#include <signal.h>

#include "base/str.h"
#include "tests/e2e/world.h"
#include "tests/support/files.h"
#include "tests/support/sanitizers.h"

namespace slime::test {
namespace {

// The program with its stderr on the pipe that we read.
Process spawn(std::vector<std::string> arguments) {
  std::vector<std::string> argv{"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>&1"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  auto process = Process::spawn(std::move(argv));
  REQUIRE_MESSAGE(process.has_value(), process.status().to_string());
  return std::move(*process);
}

// Reads lines until one begins so, and adds all of them to the text.
Status read_until(Process& process, std::string_view beginning, Nanos timeout, std::string& text) {
  const TimePoint deadline = deadline_after(steady_clock().now(), timeout);
  for (;;) {
    const auto line = process.read_line(deadline - steady_clock().now());
    if (!line) return Status(line.status()).with_context("after " + text);
    text += *line + "\n";
    if (line->rfind(beginning, 0) == 0) return {};
  }
}

std::string read_until(Process& process, std::string_view beginning) {
  std::string text;
  const Status status = read_until(process, beginning, kReady, text);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  return text;
}

// Sends SIGUSR1 and reads until the line that begins so. The thread sanitizer may keep a signal
// back until its thread, which sleeps in sigwaitinfo(), goes on: another signal has it go on.
std::string dump(Process& process, std::string_view beginning) {
  std::string text;
  Status status;
  const bool ended = eventually(
      [&] {
        REQUIRE(::kill(process.pid(), SIGUSR1) == 0);
        status = read_until(process, beginning, kThreadSanitizer ? std::chrono::seconds(5) : kReady, text);
        return status.code() != Code::kDeadlineExceeded;
      },
      kReady);
  REQUIRE_MESSAGE((ended && status.ok()), status.to_string());
  return text;
}

// The thread sanitizer keeps a signal back while its thread is in read(), where the main one of
// that process waits.
TEST_CASE("SIGUSR1 has a process write what its agent is doing, again and again, while it serves" *
          doctest::skip(kThreadSanitizer)) {
  Nanoctrl nanoctrl;
  Process peer = spawn({program_beside_this("e2e_peer"), "asked", nanoctrl.url(), "4096"});
  read_until(peer, "READY ");
  const auto agent = start_agent("asker", nanoctrl.url());
  Peer asked = agent->peer("asked");
  auto held = asked.raw().call("work", "hold", rpc::encode_arguments());
  REQUIRE(eventually([&] {
    const auto count = asked.call<std::size_t>("work", "held").wait();
    return count && *count == 1;
  }));
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    const std::string text = dump(peer, "slime: end of the dump");
    CAPTURE(text);
    CHECK(text.rfind(str("slime: process ", peer.pid(), " has 1 agent;"), 0) == 0);
    for (const std::string_view part :
         {"\nagent asked: scope default, ", ", kind e2e, ", "\n  registry: url http://",
          "\n  server: requests ", "\n  port: endpoints 1, ", "\n  peer asker: ", "\n    counters: "})
      CHECK_MESSAGE(text.find(part) != std::string::npos, part);
    const auto echo = asked.call<std::string>("work", "echo", "still here").wait();
    REQUIRE_MESSAGE(echo.has_value(), echo.status().to_string());
    CHECK(*echo == "still here");
  }
  peer.close_stdin();
  const auto ended = peer.wait(kReady);
  REQUIRE(ended.has_value());
  CHECK(ended->success());
  CHECK_FALSE(held.wait().has_value());
}

TEST_CASE("SIGUSR1 has nanoctrl write its status, and it goes on") {
  Process nanoctrl = spawn({test::built_file("ctrl/nanoctrl"), "server", "--port", "0"});
  read_until(nanoctrl, "nanoctrl listens on ");
  for (int round = 0; round < 2; ++round) {
    const std::string text = dump(nanoctrl, str("nanoctrl: process ", nanoctrl.pid(), " on http://"));
    CHECK_MESSAGE(text.find("\"peers\":0") != std::string::npos, text);
  }
  REQUIRE(nanoctrl.terminate().ok());
  const auto ended = nanoctrl.wait(kReady);
  REQUIRE(ended.has_value());
  CHECK(ended->success());
}

}  // namespace
}  // namespace slime::test
