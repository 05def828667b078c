#include <doctest/doctest.h>
#include <fcntl.h>

#include <locale>
#include <memory>
#include <string>

#include "base/function.h"
#include "base/str.h"
#include "base/unique_fd.h"

using slime::UniqueFd;
using slime::UniqueFunction;

TEST_CASE("a function owns what only moves") {
  UniqueFunction<int(int)> add = [n = std::make_unique<int>(4)](int m) { return *n + m; };
  REQUIRE(static_cast<bool>(add));
  CHECK(add(3) == 7);
  UniqueFunction<int(int)> moved = std::move(add);
  CHECK(moved(1) == 5);
  CHECK_FALSE(static_cast<bool>(UniqueFunction<void()>()));
}

TEST_CASE("a function passes arguments that only move") {
  UniqueFunction<int(std::unique_ptr<int>)> take = [](std::unique_ptr<int> value) { return *value; };
  CHECK(take(std::make_unique<int>(9)) == 9);
}

TEST_CASE("a function destroys its target once") {
  const auto counted = std::make_shared<int>(0);
  {
    UniqueFunction<void()> first = [counted] {};
    CHECK(counted.use_count() == 2);
    first = UniqueFunction<void()>();
    CHECK(counted.use_count() == 1);
  }
  CHECK(counted.use_count() == 1);
}

TEST_CASE("str joins its arguments, whatever the global locale") {
  struct Grouping : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouping));
  const std::string text = slime::str("port ", 40112, ", ", 'x', std::string("y"));
  std::locale::global(before);
  CHECK(text == "port 40112, xy");
  CHECK(slime::str("").empty());
}

TEST_CASE("a descriptor is closed once, by its last owner") {
  UniqueFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(fd.valid());
  const int number = fd.get();
  UniqueFd other = std::move(fd);
  CHECK_FALSE(fd.valid());  // NOLINT(bugprone-use-after-move): what a moved-from one says
  CHECK(fcntl(number, F_GETFD) >= 0);
  other.reset();
  CHECK(fcntl(number, F_GETFD) < 0);
  other.reset();
  CHECK_FALSE(other.valid());
}
