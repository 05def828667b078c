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

// Reads lines until one begins so; the text of all of them.
std::string read_until(Process& process, std::string_view beginning) {
  std::string text;
  for (;;) {
    const auto line = process.read_line(kReady);
    REQUIRE_MESSAGE(line.has_value(), (line.status().to_string() + " after " + text));
    text += *line + "\n";
    if (line->rfind(beginning, 0) == 0) return text;
  }
}

// The thread sanitizer keeps a signal back while its thread is in read(), where the main one of that process
// waits.
TEST_CASE("SIGUSR1 has a process write what its agent is doing, again and again, while it serves" *
          doctest::skip(kThreadSanitizer)) {
  Nanoctrl nanoctrl;
  Process peer = spawn({program_beside_this("e2e_peer"), "asked", nanoctrl.url(), "4096"});
  read_until(peer, "READY ");
  const auto agent = start_agent("asker", nanoctrl.url());
  Peer asked = agent->peer("asked");
  auto held = asked.call_raw("work", "hold", rpc::encode_arguments());
  REQUIRE(eventually([&] {
    const auto count = asked.call<std::size_t>("work", "held").wait();
    return count && *count == 1;
  }));
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    REQUIRE(::kill(peer.pid(), SIGUSR1) == 0);
    const std::string text = read_until(peer, "slime: end of the dump");
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
    REQUIRE(::kill(nanoctrl.pid(), SIGUSR1) == 0);
    const std::string text = read_until(nanoctrl, str("nanoctrl: process ", nanoctrl.pid(), " on http://"));
    CHECK_MESSAGE(text.find("\"peers\":0") != std::string::npos, text);
  }
  REQUIRE(nanoctrl.terminate().ok());
  const auto ended = nanoctrl.wait(kReady);
  REQUIRE(ended.has_value());
  CHECK(ended->success());
}

}  // namespace
}  // namespace slime::test
