#include <doctest/doctest.h>
#include <signal.h>

#include "tests/support/process.h"

namespace slime::test {
namespace {

constexpr Nanos kSoon = std::chrono::seconds(20);

TEST_CASE("lines go to a child and come back, and its exit state is read") {
  Result<Process> child =
      Process::spawn({"/bin/sh", "-c", "read line; echo \"$GREETING $line\"; exit 7"}, {"GREETING=hello"});
  REQUIRE(child);
  REQUIRE(child->write_line("world"));
  Result<std::string> line = child->read_line(kSoon);
  REQUIRE(line);
  CHECK(*line == "hello world");
  Result<ExitState> exit = child->wait(kSoon);
  REQUIRE(exit);
  CHECK_FALSE(exit->signaled);
  CHECK(exit->value == 7);
  CHECK(child->read_line(kSoon).status().code() == Code::kUnavailable);
  CHECK(child->kill().code() == Code::kNotFound);
}

TEST_CASE("a stopped child does nothing until it is resumed") {
  Result<Process> child = Process::spawn({"/bin/cat"});
  REQUIRE(child);
  REQUIRE(child->write_line("first"));
  REQUIRE(child->read_line(kSoon));
  REQUIRE(child->stop());
  REQUIRE(child->write_line("second"));
  CHECK(child->read_line(std::chrono::milliseconds(50)).status().code() == Code::kDeadlineExceeded);
  CHECK(child->wait(Nanos::zero()).status().code() == Code::kDeadlineExceeded);
  REQUIRE(child->resume());
  Result<std::string> line = child->read_line(kSoon);
  REQUIRE(line);
  CHECK(*line == "second");
}

TEST_CASE("a killed child says so, and writing to it is an error") {
  Result<Process> child = Process::spawn({"/bin/cat"});
  REQUIRE(child);
  REQUIRE(child->stop());
  REQUIRE(child->kill());
  Result<ExitState> exit = child->wait(kSoon);
  REQUIRE(exit);
  CHECK(exit->signaled);
  CHECK(exit->value == SIGKILL);
  CHECK_FALSE(child->write_line("anybody?").ok());
}

TEST_CASE("a program that is not there is an error") {
  CHECK(Process::spawn({"/nonexistent/program"}).status().code() == Code::kNotFound);
}

}  // namespace
}  // namespace slime::test
