#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/limits.h"
#include "base/log.h"
#include "tests/support/folder.h"

using slime::Code;
using slime::LogLevel;
using slime::test::Folder;

namespace {

std::string contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("levels have names, and an unknown one is refused") {
  CHECK(slime::set_log_level("error").ok());
  CHECK_FALSE(slime::log_enabled(LogLevel::kWarning));
  CHECK(slime::log_enabled(LogLevel::kError));
  CHECK(slime::set_log_level("loud").code() == Code::kInvalidArgument);
  CHECK_FALSE(slime::log_enabled(LogLevel::kWarning));
  CHECK(slime::set_log_level("off").ok());
  CHECK_FALSE(slime::log_enabled(LogLevel::kError));
  CHECK_FALSE(slime::log_enabled(LogLevel::kOff));
  CHECK(slime::set_log_level("info").ok());
}

TEST_CASE("a text is built only when its level is on") {
  slime::set_log_level(LogLevel::kWarning);
  int built = 0;
  const auto text = [&] {
    ++built;
    return "text";
  };
  SLIME_LOG(LogLevel::kDebug, "test", text());
  CHECK(built == 0);
}

TEST_CASE("lines from many threads arrive whole, each once") {
  const Folder folder;
  const std::string path = folder.file("slime.log");
  REQUIRE(slime::log_to_file(path).ok());
  slime::set_log_level(LogLevel::kInfo);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) SLIME_LOG(LogLevel::kInfo, "agent", "<", t, ".", i, ">");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = contents(path);
  CHECK(count(text, "\n") == 400);
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < 100; ++i) CHECK(count(text, slime::str("agent: <", t, ".", i, ">\n")) == 1);
  }
}

TEST_CASE("a text of a peer cannot forge lines or fill the log") {
  const Folder folder;
  const std::string path = folder.file("slime.log");
  REQUIRE(slime::log_to_file(path).ok());
  slime::set_log_level(LogLevel::kInfo);
  slime::log(LogLevel::kInfo, "agent", "one\n2026-01-01 two\x1b[31m {} %s");
  slime::log(LogLevel::kInfo, "agent", std::string(10 * slime::limits::kLogLineBytes, 'a'));
  const std::string text = contents(path);
  CHECK(count(text, "\n") == 2);
  CHECK(count(text, "one\\x0a2026-01-01 two\\x1b[31m {} %s") == 1);
  CHECK(text.size() < 2 * slime::limits::kLogLineBytes);
}

TEST_CASE("a file that cannot be opened is an error and the earlier target stays") {
  const Folder folder;
  const std::string path = folder.file("slime.log");
  REQUIRE(slime::log_to_file(path).ok());
  CHECK(slime::log_to_file("/proc/slime-no-such-folder/x.log").code() == Code::kInvalidArgument);
  slime::set_log_level(LogLevel::kInfo);
  slime::log(LogLevel::kInfo, "agent", "still here");
  CHECK(count(contents(path), "still here") == 1);
}

TEST_CASE("a full disk drops lines, never the process") {
  // /dev/full answers every write with ENOSPC.
  if (access("/dev/full", W_OK) != 0) {
    MESSAGE("skipped: no /dev/full here");
    return;
  }
  REQUIRE(slime::log_to_file("/dev/full").ok());
  slime::set_log_level(LogLevel::kInfo);
  for (int i = 0; i < 100; ++i) CHECK_NOTHROW(slime::log(LogLevel::kInfo, "agent", "nowhere to go"));

  const Folder folder;
  const std::string path = folder.file("slime.log");
  REQUIRE(slime::log_to_file(path).ok());
  slime::log(LogLevel::kInfo, "agent", "back again");
  CHECK(count(contents(path), "back again") == 1);
}
