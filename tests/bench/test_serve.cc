// `slime bench serve`, and measurements with --to, as their users run them.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/program.h"
#include "tests/support/eventually.h"
#include "tests/support/folder.h"

namespace slime::bench::program_test {
namespace {

std::string token_file(const test::Folder& folder, const std::string& name, const std::string& token) {
  const std::string path = folder.file(name);
  std::ofstream(path) << token << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  return path;
}

bool has_child(pid_t pid) {
  const std::string of = std::to_string(pid);
  std::ifstream children("/proc/" + of + "/task/" + of + "/children");
  return !!(children >> pid);
}

TEST_CASE("each kind with two ends is measured against a server at another address") {
  const Server server;
  for (const std::vector<std::string>& kind : std::vector<std::vector<std::string>>{
           {"rpc", "--provider", "tcp"},
           {"rpc", "--face", "channel", "--mode", "caller", "--provider", "tcp"},
           {"rpc", "--clients", "2", "--provider", "shm"},
           {"bulk", "--size", "64K", "--op", "read", "--provider", "tcp"},
           {"blocks", "--count", "40", "--provider", "shm"},
           {"notify", "--provider", "tcp"}}) {
    const json out = report(with(with(kind, kBrief), {"--to", server.address}));
    check_report(out, kind.back());
    CHECK(out["to"] == server.address);
    CHECK_FALSE(out["server_machine"]["cpu"].get<std::string>().empty());
  }
  check_report(report({"connect", "--count", "2", "--provider", "tcp", "--to", server.address}), "tcp");
  check_report(report({"cache", "--size", "4K", "--working-set", "64K", "--seconds", "0.05", "--provider",
                       "shm", "--to", server.address}),
               "shm");
}

TEST_CASE("one server serves several measurements at the same time") {
  const Server server;
  const auto arguments = with({"rpc", "--provider", "tcp", "--to", server.address}, kBrief);
  Process first = start(arguments);
  Process second = start(arguments);
  CHECK(finish(std::move(first)).exit_code == 0);
  CHECK(finish(std::move(second)).exit_code == 0);
}

TEST_CASE("memory of a client is free again when its connection ends") {
  const Server server({"--memory", "3M"});
  const std::vector<std::string> one{"bulk",       "--size", "1M",   "--inflight",  "2",
                                     "--provider", "shm",    "--to", server.address};
  // More than half of the memory, so two measurements fit only one after the other.
  for (int i = 0; i < 3; ++i) CHECK(run(with(one, kBrief)).exit_code == 0);
  const Outcome large =
      run(with({"bulk", "--size", "1M", "--inflight", "4", "--to", server.address}, kBrief));
  CHECK(large.exit_code == 1);
  CHECK(contains(large.text, "--memory"));
}

TEST_CASE("Ctrl-C ends a server at once") {
  Server server;
  REQUIRE(server.process.interrupt().ok());
  const auto ended = server.process.wait(kPatience);
  REQUIRE(ended.has_value());
  CHECK_FALSE(ended->signaled);
  CHECK(ended->value == 130);
}

TEST_CASE("Ctrl-C during a measurement ends server and client") {
  Server server;
  Process client = start({"rpc", "--provider", "tcp", "--seconds", "3600", "--to", server.address});
  CHECK(run(with({"rpc", "--provider", "tcp", "--to", server.address}, kBrief)).exit_code == 0);
  REQUIRE(server.process.interrupt().ok());
  CHECK(server.process.wait(kPatience).has_value());
  const Outcome outcome = finish(std::move(client));
  CAPTURE(outcome.text);
  CHECK(outcome.exit_code == 1);  // the server is gone
}

TEST_CASE("a measurement whose server is killed ends with a plain sentence") {
  for (const char* provider : {"tcp", "shm"}) {
    CAPTURE(provider);
    Server killed;
    Process client = start({"rpc", "--provider", provider, "--seconds", "3600", "--to", killed.address});
    REQUIRE(test::eventually([&] { return has_child(client.pid()); }));  // its server is open
    REQUIRE(killed.process.kill().ok());
    const Outcome outcome = finish(std::move(client));
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 1);
    CHECK(contains(outcome.text, "slime bench: unavailable: "));
    CHECK(contains(outcome.text, "the `slime bench serve` at " + killed.address +
                                     " has ended or cannot be reached any more"));
    CHECK_FALSE(contains(outcome.text, "internal"));
  }
}

TEST_CASE("a server that is not there, or is another program, is an error that says so") {
  std::string address;
  {
    const Server server;
    address = server.address;
  }
  const Outcome dead = run(with({"rpc", "--to", address}, kBrief));
  CHECK(dead.exit_code == 1);
  CHECK(contains(dead.text, "--to " + address));
  CHECK(contains(dead.text, "unavailable"));
  auto peers = Process::spawn({test::built_file("cli/slime"), "bench-peers", "1"});
  REQUIRE(peers.has_value());
  const auto ready = peers->read_line(kPatience);
  REQUIRE(ready.has_value());
  const Outcome other = run(with({"rpc", "--to", ready->substr(ready->find(' ') + 1)}, kBrief));
  CHECK(other.exit_code == 1);
  CHECK(contains(other.text, "no `slime bench serve`"));
  for (const char* wrong : {"nowhere", "127.0.0.1:99999"}) {
    CAPTURE(wrong);
    const Outcome outcome = run(with({"rpc", "--to", wrong}, kBrief));
    CHECK(outcome.exit_code != 0);
  }
}

TEST_CASE("client and server need the same token") {
  const test::Folder folder;
  const std::string right = token_file(folder, "right", "a secret of two hosts");
  const std::string wrong = token_file(folder, "wrong", "a secret of others");
  const Server server({"--token-file", right});
  for (const char* face : {"peer", "channel"}) {
    check_report(report(with({"rpc", "--face", face, "--mode", "caller", "--provider", "tcp", "--token-file",
                              right, "--to", server.address},
                             kBrief)),
                 "tcp");
  }
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--token-file", wrong}}) {
    const Outcome outcome = run(with(with({"rpc", "--to", server.address}, kBrief), more));
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 1);
    CHECK(contains(outcome.text, "unauthenticated"));
  }
}

TEST_CASE("off loopback a server takes a token or --insecure") {
  const Outcome refused = run({"serve", "--listen", "0.0.0.0:0"});
  CAPTURE(refused.text);
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.text, "token"));
  Process open = start({"serve", "--listen", "0.0.0.0:0", "--insecure"});
  const auto line = open.read_line(kPatience);
  REQUIRE(line.has_value());
  const std::string port = line->substr(line->rfind(':'));
  check_report(report(with({"rpc", "--provider", "tcp", "--to", "localhost" + port}, kBrief)), "tcp");
}

TEST_CASE("kinds with one end refuse --to, and say why") {
  for (const char* kind : {"idle", "null", "ctrl", "all"}) {
    const Outcome outcome = run({kind, "--to", "127.0.0.1:4480"});
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 2);
    CHECK(contains(outcome.text, "--to: "));
  }
}

TEST_CASE("a report as CSV has a line of names and a line of values") {
  const Outcome outcome = run(with({"rpc", "--provider", "tcp", "--csv"}, kBrief));
  CHECK(outcome.exit_code == 0);
  const auto end = outcome.text.find('\n');
  REQUIRE(end != std::string::npos);
  const std::string names = outcome.text.substr(0, end);
  CHECK(contains(names, ",p50_us,"));
  CHECK(contains(names, "limit.value"));
  CHECK(contains(outcome.text.substr(end), "\nrpc,"));
}

TEST_CASE("a server refuses clients of another version, and measurements that are out of bounds") {
  const Server server;
  const auto call = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> argv{"/bin/sh",
                                  "-c",
                                  "exec \"$0\" call \"$@\" 2>&1",
                                  test::built_file("cli/slime"),
                                  server.address,
                                  "bench.serve.open"};
    auto process = Process::spawn(with(std::move(argv), arguments));
    REQUIRE(process.has_value());
    return finish(*std::move(process));
  };
  const Outcome version = call({"\"0.0.1/0\"", "\"{}\""});
  CHECK(version.exit_code == 1);
  CHECK(contains(version.text, "run one version of slime on both hosts"));
  const json started = {{"inflight", 0}};
  const Outcome bounds = call({json(server.version).dump(), json(started.dump()).dump()});
  CHECK(bounds.exit_code == 2);
  CHECK(contains(bounds.text, "--inflight"));
}

}  // namespace
}  // namespace slime::bench::program_test
