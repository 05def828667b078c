// Children for real: the shell.
#include <doctest/doctest.h>
#include <signal.h>

#include <cerrno>

#include "base/child.h"

namespace slime {
namespace {

constexpr Nanos kPatience = std::chrono::seconds(60);

Child shell(const char* script, int end_signal = 0) {
  auto child = Child::start({"-c", script}, "sh", end_signal);
  REQUIRE_MESSAGE(child.has_value(), child.status().to_string());
  return std::move(*child);
}

bool gone(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

TEST_CASE("a command gets the answer that begins with its word") {
  Child child = shell("while read line; do echo \"SAID $line\"; done");
  CHECK(child.ask("one two", "SAID", kPatience).value_or("") == "one two");
  REQUIRE(child.write_line("three").ok());
  const auto other = child.expect("READY", kPatience);
  REQUIRE_FALSE(other.has_value());
  CHECK(other.error().code() == Code::kInternal);
}

TEST_CASE("an answer ERROR is the child's own text") {
  Child child = shell("echo ERROR too few pages");
  const auto answer = child.expect("READY", kPatience);
  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.error().text() == "too few pages");
}

TEST_CASE("an answer ERROR with the text of a status is that status") {
  Child child =
      shell("echo ERROR unavailable: lost the peer; echo ERROR cancelled; echo ERROR unavailable peer");
  CHECK(child.expect("READY", kPatience).status().to_string() == "unavailable: lost the peer");
  CHECK(child.expect("READY", kPatience).status().to_string() == "cancelled");
  CHECK(child.expect("READY", kPatience).status().to_string() == "internal: unavailable peer");
}

TEST_CASE("a child that has ended, and a child that says nothing") {
  Child over = shell("exit 0");
  CHECK(over.read_line(kPatience).status().code() == Code::kUnavailable);
  CHECK(over.ended());
  Child silent = shell("read line");
  CHECK(silent.read_line(std::chrono::milliseconds(1)).status().code() == Code::kDeadlineExceeded);
  CHECK_FALSE(silent.ended());
  CHECK_FALSE(silent.readable());
}

TEST_CASE("a child ends with its stdin, or by its signal, before the destructor returns") {
  for (const int end_signal : {0, SIGTERM}) {
    pid_t pid = 0;
    {
      const Child child = shell(end_signal == 0 ? "read line" : "exec sleep 1000", end_signal);
      pid = child.pid();
      CHECK_FALSE(gone(pid));
    }
    CHECK(gone(pid));
  }
}

}  // namespace
}  // namespace slime
