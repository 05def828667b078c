#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "cli/signatures.h"

using slime::rpc::MethodInfo;
using slime::rpc::ServiceInfo;
namespace cli = slime::cli;

TEST_CASE("parameters are shown as far as they are known") {
  CHECK(cli::parameters_text({}) == "()");
  CHECK(cli::parameters_text({.parameters = {{.type = "int"}, {.type = "list[str]"}}}) == "(int, list[str])");
  CHECK(cli::parameters_text({.parameters = {{.name = "a", .type = "int"},
                                             {.name = "b", .type = "str", .optional = true},
                                             {.name = "rest", .rest = true}}}) ==
        "(a: int, b?: str, *rest: any)");
  CHECK(cli::parameters_text({.parameters = {{.type = "int", .optional = true}}}) == "(int?)");
  CHECK(cli::parameters_text({.parameters = {{.rest = true}}}) == "(...)");
  CHECK(cli::parameters_text({.parameters = {{.type = "int", .rest = true}}}) == "(*: int)");
}

TEST_CASE("a peer's texts do not steer the terminal") {
  CHECK(cli::printable("größe\x1b[2J\n\x7f") == "größe?[2J??");
  CHECK(cli::parameters_text({.parameters = {{.name = "a\x1b", .type = "b\n"}}}) == "(a?: b?)");
}

TEST_CASE("a suggestion names what there is: services, methods, or the way to call the method") {
  const std::vector<ServiceInfo> services{
      {.name = "a",
       .methods = {{.name = "m", .parameters = {{.name = "x", .type = "int"}}, .result = "str"}}},
      {.name = "b", .methods = {}}};
  CHECK(cli::suggestion(services, "c", "m") == "services there: a, b");
  CHECK(cli::suggestion(services, "a", "n") == "methods of a: m(x: int)");
  CHECK(cli::suggestion(services, "a", "m") == "it is a.m(x: int) -> str");
}

TEST_CASE("a suggestion has an end") {
  std::vector<ServiceInfo> services(23, ServiceInfo{.name = "s"});
  const std::string text = cli::suggestion(services, "c", "m");
  CHECK(text.find("s and 3 more") != std::string::npos);
}
