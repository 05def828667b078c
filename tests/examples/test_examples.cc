// The examples as people run them: two processes, their output and their exit status.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"

namespace {

using namespace std::chrono_literals;
using slime::test::ExitState;
using slime::test::Process;

const slime::Nanos kPatience = slime::test::patient(60s);

Process start(std::vector<std::string> argv) {
  auto process = Process::spawn(std::move(argv), {"SLIME_PROVIDER=" + slime::test::provider()});
  REQUIRE_MESSAGE(process, process.status().to_string());
  return std::move(*process);
}

std::string example(const std::string& name) { return slime::test::built_file("examples/" + name); }

std::string line_of(Process& process) {
  auto line = process.read_line(kPatience);
  REQUIRE_MESSAGE(line, line.status().to_string());
  return *line;
}

// Everything that it prints, once it has ended well.
std::string output_of(Process& process) {
  std::string out;
  while (true) {
    auto line = process.read_line(kPatience);
    if (!line) break;
    out += *line + "\n";
  }
  CAPTURE(out);
  const auto ended = process.wait(kPatience);
  REQUIRE(ended);
  CHECK(ended->success());
  return out;
}

void check_contains(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CAPTURE(part);
  CHECK(text.find(part) != std::string::npos);
}

// A server ends with the end of its input, and well.
void check_ends(Process& server) {
  server.close_stdin();
  const auto ended = server.wait(kPatience);
  REQUIRE(ended);
  CHECK(ended->success());
}

TEST_CASE("call: the client calls the server and sees its errors") {
  Process server = start({example("call"), "serve"});
  Process client = start({example("call"), "client", line_of(server)});
  const std::string out = output_of(client);
  for (const char* part :
       {"40 + 2 = 42", "1 / 2 = 0.5", "total = 7", "1 / 0: invalid_argument", "power: not_found"})
    check_contains(out, part);
  check_ends(server);
}

TEST_CASE("stream: messages go in either direction, and in both") {
  Process server = start({example("stream"), "serve"});
  Process client = start({example("stream"), "client", line_of(server)});
  const std::string out = output_of(client);
  for (const char* part : {"word: streams\nword: of\nword: many\nword: words\n", "only: first",
                           "words written: 2000", "upper: ABC"})
    check_contains(out, part);
  check_ends(server);
}

TEST_CASE("one_sided: every byte comes, goes and comes back") {
  Process server = start({example("one_sided"), "serve"});
  Process client = start({example("one_sided"), "fetch", line_of(server)});
  const std::string out = output_of(client);
  check_contains(out, "read 64 MiB");
  check_contains(out, "wrote 64 blocks and read them back, every byte right");
  check_ends(server);
}

TEST_CASE("named_peers: the client finds the server by its name") {
  Process registry =
      start({slime::test::built_file("ctrl/nanoctrl"), "server", "--port", "0", "--log-level", "error"});
  const std::string told = line_of(registry);  // "nanoctrl listens on http://127.0.0.1:PORT"
  const std::string url = told.substr(told.rfind(' ') + 1);
  Process server = start({example("named_peers"), "serve", "worker:0", url});
  CHECK(line_of(server) == "ready");
  Process client = start({example("named_peers"), "client", "worker:0", url});
  const std::string out = output_of(client);
  check_contains(out, "worker:0: read on the board: hello from agent-");
  check_contains(out, "\"worker:0\"");
  check_ends(server);
}

TEST_CASE("wrong use is exit status 2, a failure is 1") {
  for (const std::string& program :
       {example("one_sided"), example("call"), example("stream"), example("named_peers")}) {
    Process process = start({program, "dance"});
    const auto ended = process.wait(kPatience);
    REQUIRE(ended);
    CHECK((!ended->signaled && ended->value == 2));
  }
  Process process = start({example("call"), "client", "127.0.0.1:1"});
  const auto ended = process.wait(kPatience);
  REQUIRE(ended);
  CHECK((!ended->signaled && ended->value == 1));
}

}  // namespace
