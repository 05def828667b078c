// `slime bench` as its users run it. Nothing here depends on how fast anything is.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/program.h"
#include "tests/support/folder.h"

namespace slime::bench::program_test {
namespace {

using test::Folder;

json read_file(const std::string& path) {
  std::ifstream in(path);
  json out = json::parse(in, nullptr, false);
  REQUIRE(out.is_object());
  return out;
}

TEST_CASE("every transfer reports figures, the limit of its provider and the ratio") {
  const std::vector<std::vector<std::string>> kinds = {
      {"rpc", "--mode", "caller"},
      {"rpc", "--inflight", "8"},
      {"bulk", "--size", "64K", "--inflight", "2"},
      {"bulk", "--size", "64K", "--op", "read", "--memory", "foreign"},
      {"blocks", "--count", "40"},
      {"notify"}};
  for (const char* provider : {"tcp", "shm"}) {
    for (const auto& kind : kinds) {
      const json out = report(with(with(kind, kBrief), {"--provider", provider}));
      check_report(out, provider);
      const std::string name = out["limit"]["name"];
      CHECK_MESSAGE(contains(name, "TCP") == (provider == std::string("tcp")), name);
      CHECK(out["ops_per_s"] > 0);
      CHECK(out["p50_us"] <= out["p99_us"]);
      CHECK(out.contains("faults_per_operation") == (kind[0] == "bulk" || kind[0] == "blocks"));
    }
  }
}

TEST_CASE("the cost of an operation by itself is measured on a verbs library without a device") {
  for (const std::string face : {"peer", "endpoint", "channel"}) {
    CAPTURE(face);
    const json out = report({"null", "--face", face, "--seconds", "0.02", "--size", "200"});
    CHECK(out["provider"] == "verbs");
    CHECK(out["operation"] == (face == "channel" ? "call" : "write"));
    CHECK(out["verified"] == true);
    CHECK(out["operations"] > 0);
    CHECK(out["ns_per_op"] > 0);
    if (out.contains("instructions_per_op")) CHECK(out["instructions_per_op"] > 50);
    if (face == "endpoint") CHECK(out["per_operation"]["work_requests"].get<double>() == doctest::Approx(1));
  }
}

TEST_CASE("a null library that is not there is an error that says how to get one") {
  const Outcome outcome = run({"null", "--seconds", "0.02", "--library", "/nowhere/libibverbs.so.1"});
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.text, "/nowhere/libibverbs.so.1"));
  CHECK(contains(outcome.text, "--target null_verbs"));
}

TEST_CASE("rounds: medians between the least and the largest") {
  const json out = report(with({"rpc", "--rounds", "3", "--provider", "tcp"}, kBrief));
  check_report(out, "tcp");
  CHECK(out["rounds"] == 3);
  for (const char* figure : {"p50_us", "ops_per_s"}) {
    CHECK(out["spread"][figure][0] <= out[figure]);
    CHECK(out[figure] <= out["spread"][figure][1]);
  }
  CHECK(out["limit"]["spread"][0] <= out["limit"]["value"]);
  CHECK(out["ratio_spread"][0] <= out["ratio_spread"][1]);
}

TEST_CASE("several clients: the total beside that of one, and the least share") {
  const json out = report(with({"rpc", "--clients", "3", "--inflight", "2", "--provider", "tcp"}, kBrief));
  check_report(out, "tcp");
  CHECK(out["one_client"]["ops_per_s"] > 0);
  CHECK(out["one_client"]["ratio"].get<double>() ==
        doctest::Approx(out["ops_per_s"].get<double>() / out["one_client"]["ops_per_s"].get<double>()));
  CHECK(out["least_share"] > 0);
  CHECK(out["least_share"] <= 1.0001);
}

TEST_CASE("several clients that block stand beside as many limits at the same time") {
  for (const char* provider : {"tcp", "shm"}) {
    const json out =
        report(with({"rpc", "--clients", "3", "--inflight", "2", "--provider", provider}, kBrief));
    CHECK(out["one_client"]["limit_ratio"] > 0);
  }
  const json spinning = report(
      with({"rpc", "--clients", "2", "--inflight", "2", "--mode", "caller", "--provider", "shm"}, kBrief));
  CHECK_FALSE(spinning["one_client"].contains("limit_ratio"));
}

TEST_CASE("threads of a client share its agent and what is in flight") {
  for (const char* mode : {"thread", "caller"}) {
    const json out = report(
        with({"rpc", "--threads", "4", "--inflight", "8", "--mode", mode, "--provider", "shm"}, kBrief));
    check_report(out, "shm");
    CHECK(out["threads"] == 4);
    CHECK(out["inflight"] == 8);
    CHECK(out["p50_us"] <= out["p99_us"]);
  }
}

TEST_CASE("calls beside large writes to the same peer") {
  for (const char* provider : {"tcp", "shm"}) {
    const json out = report(with({"rpc", "--beside", "4M", "--provider", provider}, kBrief));
    check_report(out, provider);
    CHECK(out["beside_bytes"] == 4 << 20);
    CHECK(out["beside_gb_per_s"] > 0);
  }
}

TEST_CASE("blocks by prepared batches and by number move what other blocks do") {
  for (const char* provider : {"tcp", "shm"}) {
    for (const char* operation : {"write", "read"}) {
      for (const auto& words : std::vector<std::vector<std::string>>{
               {"bulk", "--face", "prepared", "--size", "4K", "--clients", "2"},
               {"blocks", "--face", "prepared", "--count", "20", "--mode", "thread"},
               {"blocks", "--face", "numbers", "--count", "20", "--inflight", "2"}}) {
        const json out = report(with(with(words, kBrief), {"--op", operation, "--provider", provider}));
        check_report(out, provider);
        CHECK(out["face"] == words[2]);
        CHECK(out["gb_per_s"] > 0);
      }
    }
  }
}

TEST_CASE("the processor time of both sides") {
  const json out = report(with({"rpc", "--provider", "tcp"}, kBrief));
  CHECK(out["client_cpu_s_per_million"] >= 0);
  CHECK(out["server_cpu_s_per_million"] >= 0);
  const double total =
      out["client_cpu_s_per_million"].get<double>() + out["server_cpu_s_per_million"].get<double>();
  CHECK(total > 0);
  // 64 bytes there and back.
  CHECK(out["cpu_s_per_gib"].get<double>() == doctest::Approx(total / 1e6 / 128 * (1 << 30)));
}

TEST_CASE("an idle peer after larger calls: what the first peer leaves in the process is not counted") {
  const json out = report(
      {"idle", "--peers", "3", "--calls", "5", "--up-to", "1M", "--seconds", "0.05", "--provider", "shm"});
  check_report(out, "shm");
  CHECK(out["up_to"] == 1 << 20);
  CHECK(out["first_peer_kib"] > 0);
  const json alone = report(
      {"idle", "--peers", "1", "--calls", "1", "--up-to", "256", "--seconds", "0.05", "--provider", "shm"});
  CHECK_FALSE(alone.contains("first_peer_kib"));
}

TEST_CASE("cold blocks are different ones until each block was moved") {
  for (const char* operation : {"write", "read"}) {
    const json out = report(
        with({"bulk", "--cold", "--op", operation, "--size", "16K", "--pool-size", "8M", "--provider", "shm"},
             kBrief));
    check_report(out, "shm");
    CHECK(out["cold"] == true);
    CHECK(out["count"] == 16);
    CHECK(out["inflight"] == 1);
    const double moved = out["blocks_moved"];
    CHECK(moved >= 16);
    CHECK(out["distinct_blocks"].get<double>() == std::min(moved, 512.0));
    CHECK(contains(out["limit"]["name"], "cold"));
  }
  const json hot = report(with({"bulk", "--size", "16K", "--provider", "shm"}, kBrief));
  CHECK(hot["cold"] == false);
  CHECK(contains(hot["limit"]["name"], "hot"));
}

TEST_CASE("connect, cache and idle") {
  for (const char* provider : {"tcp", "shm"}) {
    const json connect = report({"connect", "--count", "3", "--provider", provider});
    check_report(connect, provider);
    CHECK(connect["count"] == 3);
    CHECK(connect["p50_us"] <= connect["p99_us"]);
    for (const char* operation : {"get", "put"}) {
      for (const char* mode : {"thread", "caller"}) {
        const json small = report({"cache", "--op", operation, "--size", "100", "--seconds", "0.05", "--mode",
                                   mode, "--working-set", "2K", "--provider", provider});
        check_report(small, provider);
        CHECK(small["objects"] == 20);
        CHECK(small["limit"]["figure"] == "p50_us");
      }
      const json large = report({"cache", "--op", operation, "--size", "64K", "--batch", "4", "--seconds",
                                 "0.05", "--working-set", "512K", "--provider", provider});
      check_report(large, provider);
      CHECK(large["objects"] == 8);
      CHECK(large["limit"]["figure"] == "gb_per_s");
    }
    const json idle =
        report({"idle", "--peers", "3", "--calls", "5", "--seconds", "0.05", "--provider", provider});
    check_report(idle, provider);
    CHECK(idle["fds_per_peer"] >= 1);
    CHECK(idle["fds_per_peer"] <= 4);
    CHECK(idle["cpu_percent"] >= 0);
  }
}

TEST_CASE("agents of a nanoctrl: each hears of each death of its scope, and none is lost") {
  const Folder folder;
  ::setenv("SLIME_RUNTIME_DIR", folder.path().c_str(), 1);  // the server's pid file
  using Case = std::pair<const char*, const char*>;
  for (const auto& [connections, store] :
       {Case{"new", "memory"}, Case{"kept", "sqlite"}, Case{"kept", "redis"}}) {
    const Outcome outcome =
        run({"ctrl",      "--agents", "50",  "--scopes", "2",   "--heartbeat", "0.2", "--ttl",
             "2",         "--rate",   "5",   "--warmup", "0.5", "--seconds",   "1",   "--connections",
             connections, "--store",  store, "--json"});
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 0);
    // Before it on the same stream: what it is doing.
    const json out = json::parse(outcome.text.substr(outcome.text.find('{')), nullptr, false);
    REQUIRE(out.is_object());
    CHECK(out["verified"] == true);
    REQUIRE(out["runs"].size() == 1);
    const json& ctrl = out["runs"][0];
    CHECK(ctrl["agents"] == 50);
    CHECK(ctrl["scopes"] == 2);
    CHECK(ctrl["connections"] == connections);
    CHECK(ctrl["store"] == store);
    CHECK(ctrl["store_server"].is_null() == (std::string(store) != "redis"));
    CHECK(ctrl["heartbeats"]["count"] > 0);
    CHECK(ctrl["registrations"]["count"] > 0);
    CHECK(ctrl["events_per_s"] > 0);
    CHECK(ctrl["lost"] == 0);
    CHECK(ctrl["unknown"] == 0);
    CHECK(ctrl["errors"].empty());
    // The others of its scope, unless they died too, and an agent that took its place before its
    // lease ended.
    CHECK(ctrl["deaths"]["count"] > 0);
    CHECK(ctrl["deaths"]["pairs"] > ctrl["deaths"]["count"]);
    CHECK(ctrl["deaths"]["pairs"].get<double>() <= 25 * ctrl["deaths"]["count"].get<double>());
    for (const char* wrong : {"late", "never", "early"}) CHECK(ctrl["deaths"][wrong] == 0);
    CHECK(ctrl["server"]["resident_peak_mib"] > 0);
    CHECK(ctrl["server"]["processes"] == 1);
  }
  ::unsetenv("SLIME_RUNTIME_DIR");
}

TEST_CASE("the table for people names the limit and the ratio") {
  const Outcome outcome = run(with({"rpc", "--provider", "tcp"}, kBrief));
  CHECK(outcome.exit_code == 0);
  for (const char* row :
       {"\nlimit.name ", "raw TCP echo, spinning, round trip\n", "\np50_us ", "\nratio_to_limit "})
    CHECK(contains(outcome.text, row));
  CHECK(contains(outcome.text, "\nverified"));
}

TEST_CASE("wrong options are told with exit code 2") {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"rpc", "--rounds", "0"},
                                             {"bulk", "--cold", "--pool-size", "1M", "--size", "1M"},
                                             {"bulk", "--cold", "--face", "channel", "--mode", "caller"},
                                             {"bulk", "--cold", "--clients", "2"},
                                             {"rpc", "--threads", "3", "--inflight", "8"},
                                             {"rpc", "--threads", "2", "--inflight", "8", "--face", "channel",
                                              "--mode", "caller", "--provider", "shm"},
                                             {"rpc", "--beside", "1M", "--clients", "2"},
                                             {"bulk", "--face", "numbers"},
                                             {"cache", "--batch", "0"},
                                             {"connect", "--count", "0"},
                                             {"ctrl", "--ttl", "1", "--heartbeat", "1"},
                                             {"ctrl", "--ctrl", "127.0.0.1:4479"},
                                             {"ctrl", "--store", "paper"},
                                             {"all"},
                                             {"all", "--json", "/dev/null", "--only", "no-such-line"}}) {
    const Outcome outcome = run(arguments);
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 2);
    CHECK_FALSE(outcome.text.empty());
  }
}

TEST_CASE("all writes a whole file") {
  const Folder folder;
  const std::string file = folder.file("all.json");
  const Outcome all = run({"all", "--json", file, "--quick", "--commit", "abc", "--only", "rpc-64-thread",
                           "bulk-write-64K", "connect-thread"});
  CAPTURE(all.text);
  CHECK(all.exit_code == 0);
  const json out = read_file(file);
  CHECK(out["complete"] == true);
  CHECK(out["interrupted"] == false);
  CHECK(out["commit"] == "abc");
  for (const char* fact : {"cpu", "cores", "siblings", "caches", "memory_gib", "kernel", "load", "time"})
    CHECK(out["machine"].contains(fact));
  std::vector<std::string> names;
  for (const json& line : out["lines"]) {
    names.push_back(line["name"]);
    CAPTURE(line.dump());
    REQUIRE(line.contains("report"));
    CHECK(line["report"]["ratio_to_limit"] > 0);
    CHECK(contains(line["command"], "slime bench "));
    CHECK(contains(all.text, line["name"]));
  }
  CHECK(names == std::vector<std::string>{"tcp/rpc-64-thread", "tcp/rpc-64-thread-64", "tcp/bulk-write-64K",
                                          "tcp/bulk-write-64K-agents", "tcp/connect-thread",
                                          "shm/rpc-64-thread", "shm/rpc-64-thread-64", "shm/bulk-write-64K",
                                          "shm/bulk-write-64K-agents", "shm/connect-thread"});
}

TEST_CASE("Ctrl-C ends a whole table and leaves what was done in a valid file") {
  const Folder folder;
  const std::string file = folder.file("all.json");
  // The second line would take an hour.
  Process process = start({"all", "--json", file, "--rounds", "1", "--seconds", "3600", "--provider", "tcp",
                           "--only", "connect-thread", "idle-50", "cache-get-64K-thread"});
  const auto first = process.read_line(kPatience);
  REQUIRE(first.has_value());
  CHECK(contains(*first, "[1/3] tcp/connect-thread: p50_us"));
  REQUIRE(process.interrupt().ok());
  const Outcome outcome = finish(std::move(process));
  CAPTURE(outcome.text);
  CHECK(outcome.exit_code == 130);
  const json out = read_file(file);
  CHECK(out["interrupted"] == true);
  CHECK(out["complete"] == false);
  REQUIRE(out["lines"].size() == 1);
  CHECK(out["lines"][0]["name"] == "tcp/connect-thread");
}

}  // namespace
}  // namespace slime::bench::program_test
