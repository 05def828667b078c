// The program slime-cache, as its users run it.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "cache/client.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"
#include "tests/transport/huge_pool.h"

namespace slime::cache {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

const Nanos kSoon = test::patient(60s);

// A folder for pid files and logs that is gone with the test, and what runs out of it.
class Runtime {
 public:
  ~Runtime() { spawn({"stop", "--force"}).wait(kSoon).status().ignore(); }
  test::Process spawn(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    arguments.insert(arguments.begin(), test::built_file("cache/slime-cache"));
    environment.push_back("SLIME_RUNTIME_DIR=" + folder_.path().string());
    environment.push_back("SLIME_PROVIDER=" + test::provider());
    auto process = test::Process::spawn(std::move(arguments), std::move(environment));
    REQUIRE(process.has_value());
    return std::move(*process);
  }
  struct Outcome {
    int status = -1;
    std::string line;
    Json json;
  };
  Outcome run(std::vector<std::string> arguments) {
    test::Process process = spawn(std::move(arguments));
    Outcome out;
    out.line = process.read_line(kSoon).value_or("");
    out.json = Json::parse(out.line, nullptr, false);
    const auto ended = process.wait(kSoon);
    REQUIRE(ended.has_value());
    REQUIRE_FALSE(ended->signaled);
    out.status = ended->value;
    return out;
  }

 private:
  test::Folder folder_;
};

TEST_CASE("a name that is not UTF-8 is told with a replacement character") {
  Runtime runtime;
  const auto stopped = runtime.run({"stop", "--name", "a\xff", "--json"});
  CHECK(stopped.status == 3);
  CHECK(stopped.json.at("name") == "a\uFFFD");
}

TEST_CASE("slime-cache starts once, answers, and stops") {
  Runtime runtime;
  CHECK(runtime.run({"status", "--json"}).status == 3);
  const auto started = runtime.run({"start", "--memory-size", "8M", "--slab-size", "64K", "--json"});
  REQUIRE_MESSAGE(started.status == 0, started.line);
  CHECK(started.json["state"] == "started");
  const auto again = runtime.run({"start", "--json"});
  CHECK(again.status == 0);
  CHECK(again.json["state"] == "already_running");
  CHECK(again.json["pid"] == started.json["pid"]);

  auto agent = PeerAgent::start({.name = "user:0", .provider = test::provider()});
  REQUIRE(agent.has_value());
  CacheClient client = *CacheClient::create(**agent, started.json["address"].get<std::string>());
  REQUIRE(client.put("ns", "a", std::string_view("hello")).ok());
  const auto status = runtime.run({"status", "--json"});
  CHECK(status.status == 0);
  CHECK(status.json["state"] == "running");
  CHECK(status.json["address"] == started.json["address"]);
  CHECK(status.json["stats"]["objects"] == 1);
  CHECK(status.json["stats"]["arena_bytes"] == 8 << 20);
  CHECK(status.json["stats"]["classes"].size() == 5);
  CHECK(runtime.run({"status"}).line.find("cache:0 runs: 127.0.0.1:") != std::string::npos);
  CHECK(runtime.run({"status", "--name", "cache:1"}).status == 3);

  const auto stopped = runtime.run({"stop", "--json"});
  CHECK(stopped.status == 0);
  CHECK(stopped.json["state"] == "stopped");
  CHECK(runtime.run({"stop", "--json"}).status == 3);
  CHECK(runtime.run({"status", "--json"}).json["state"] == "not_running");
}

TEST_CASE("slime-cache server runs in the foreground until it is interrupted") {
  Runtime runtime;
  test::Process server = runtime.spawn({"server", "--memory-size", "4M", "--json"});
  const auto line = server.read_line(kSoon);
  REQUIRE(line.has_value());
  CHECK(Json::parse(*line)["state"] == "running");
  CHECK(runtime.run({"status", "--json"}).status == 0);
  REQUIRE(server.interrupt().ok());
  const auto ended = server.wait(kSoon);
  REQUIRE(ended.has_value());
  CHECK(ended->success());
}

TEST_CASE("slime-cache takes its memory from the pool of huge pages, or says what the pool lacks") {
  const transport::testing::HugePool pool;
  Runtime runtime;
  const auto none = runtime.run({"start", "--memory-size", "1024T", "--huge-pages", "--json"});
  CHECK(none.status == 1);
  if (pool.state.page_bytes == 0) {
    CHECK(none.json["code"] == "unimplemented");
    return;
  }
  CHECK(none.json["code"] == "resource_exhausted");
  CHECK(none.json["message"].get<std::string>().find("sysctl vm.nr_hugepages=") != std::string::npos);
  if (!pool.has(1)) return;
  const std::string size = std::to_string(pool.state.page_bytes);
  const auto started = runtime.run({"start", "--memory-size", size, "--huge-pages", "--json"});
  REQUIRE_MESSAGE(started.status == 0, started.line);
  CHECK(transport::read_huge_pages().free < pool.state.free);
  auto agent = PeerAgent::start({.name = "user:0", .provider = test::provider()});
  REQUIRE(agent.has_value());
  CacheClient client = *CacheClient::create(**agent, started.json["address"].get<std::string>());
  REQUIRE(client.put("ns", "a", std::string_view("hello")).ok());
  CHECK(runtime.run({"stop", "--json"}).status == 0);
}

TEST_CASE("slime-cache says what is wrong with what it was asked") {
  Runtime runtime;
  const auto too_much = runtime.run({"start", "--memory-size", "1024T", "--json"});
  CHECK(too_much.status == 1);
  CHECK(too_much.json["code"] == "resource_exhausted");
  CHECK(too_much.json["message"].get<std::string>().find("memory available") != std::string::npos);
  const auto odd = runtime.run({"start", "--memory-size", "4M", "--slab-size", "5000", "--json"});
  CHECK(odd.status == 1);
  CHECK(odd.json["code"] == "invalid_argument");
  const auto open = runtime.run({"start", "--memory-size", "4M", "--listen", "0.0.0.0:0", "--json"});
  CHECK(open.status == 1);
  CHECK(open.json["state"] == "failed");
  CHECK(runtime.run({"server", "--memory-size", "many"}).status == 2);
  CHECK(runtime.run({"server", "--token", "a-secret"}).status == 2);
  CHECK(runtime.run({"fly"}).status == 2);
  CHECK(runtime.run({}).status == 2);
  CHECK(runtime.run({"version"}).line.find("slime-cache ") == 0);
  CHECK(runtime.run({"--help"}).status == 0);
}

}  // namespace
}  // namespace slime::cache
