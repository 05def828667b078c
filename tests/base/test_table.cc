#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/table.h"

namespace slime {
namespace {

// What `print` writes to stdout.
template <class F>
std::string printed(F print) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stdout);
  const int before = ::dup(STDOUT_FILENO);
  REQUIRE(::dup2(::fileno(file), STDOUT_FILENO) == STDOUT_FILENO);
  print();
  std::fflush(stdout);
  REQUIRE(::dup2(before, STDOUT_FILENO) == STDOUT_FILENO);
  ::close(before);
  std::string out;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) out.push_back(static_cast<char>(c));
  std::fclose(file);
  return out;
}

TEST_CASE("a table has columns as wide as they need to be, and no control characters") {
  CHECK(printed([] {
          print_table({{"NAME", "KIND"}, {"a-long-name", "x"}, {"b\x1b]0;mine\x07", "two\nlines\x7f"}});
        }) ==
        "NAME         KIND\n"
        "a-long-name  x\n"
        "b?]0;mine?   two?lines?\n");
}

}  // namespace
}  // namespace slime
