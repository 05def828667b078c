// The tables of several sizes, as their users print them.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/bench/program.h"

namespace slime::bench::program_test {
namespace {

// Returns the rows of a report, each of which has all columns and checked bytes.
json rows_of(const json& out) {
  CHECK(out["verified"] == true);
  CHECK_FALSE(out["machine"]["cpu"].get<std::string>().empty());
  for (const json& row : out["rows"]) {
    CAPTURE(row.dump());
    CHECK(row["verified"] == true);
    for (const auto& name : out["columns"]) CHECK(row.contains(name));
  }
  return out["rows"];
}

TEST_CASE("p2p: each operation of each size, in parts and in both directions") {
  for (const char* provider : {"tcp", "shm"}) {
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{}, {"--iovs", "4"}, {"--dual"}, {"--dual", "--iovs", "2"}}) {
      const json rows =
          rows_of(report(with({"p2p", "--sizes", "256,64K", "--iters", "3", "--provider", provider}, more)));
      CHECK(rows.size() == 6);
      std::set<std::pair<std::string, std::uint64_t>> seen;
      for (const json& row : rows) {
        seen.emplace(row["operation"], row["size"]);
        const bool two = !more.empty() && more[0] == "--dual" && row["operation"] != "send";
        CHECK(row["operations"] == (two ? 6 : 3));
        CHECK(row["gbps"].get<double>() == doctest::Approx(8 * row["gb_per_s"].get<double>()));
        CHECK(row["latency_us"] > 0);
      }
      CHECK(seen.size() == 6);
    }
  }
}

TEST_CASE("p2p prints a line for each size, also as CSV, and refuses more parts than bytes") {
  const std::vector<std::string> arguments{"p2p", "--op", "write", "--sizes", "512,4K", "--iters", "2"};
  for (const std::vector<std::string>& form : std::vector<std::vector<std::string>>{{}, {"--csv"}}) {
    const Outcome outcome = run(with(arguments, form));
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 0);
    for (const char* word : {"gbps", "512", "4096"}) CHECK(contains(outcome.text, word));
  }
  const Outcome wrong = run(with(arguments, {"--iovs", "1000"}));
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.text, "--iovs"));
}

TEST_CASE("p2p against a server at another address") {
  const Server server;
  const json out = report({"p2p", "--sizes", "4K", "--iters", "2", "--dual", "--to", server.address});
  CHECK(out["to"] == server.address);
  CHECK(rows_of(out).size() == 3);
}

TEST_CASE("transfer has the rows of transfer_bench, here and between a target and an initiator") {
  const std::vector<std::string> arguments{"transfer", "--batch-size", "3", "--duration", "0.02"};
  const json rows = rows_of(report(with(arguments, {"--device-name", "mlx5_0", "--provider", "shm"})));
  REQUIRE(rows.size() == 9);
  CHECK(rows[0]["block_size"] == 8192);
  CHECK(rows[8]["block_size"] == 2'048'000);
  for (const json& row : rows) {
    const double mib = row["trips"].get<double>() * row["block_size"].get<double>() * 3 / (1 << 20);
    CHECK(row["transferred_mib"].get<double>() == doctest::Approx(mib));
    CHECK(row["latency_ms"] > 0);
  }
  Process target = start({"transfer", "--mode", "target", "--local-endpoint", "127.0.0.1:0"});
  const auto line = target.read_line(kPatience);
  REQUIRE(line.has_value());
  const std::string address = line->substr(line->rfind(' ') + 1);
  const json between = rows_of(
      report(with(arguments, {"--block-size", "16K,64K", "--op", "write", "--remote-endpoint", address})));
  CHECK(between.size() == 2);
}

TEST_CASE("blocks --sweep has a line for each size, beside memcpy and single blocks") {
  const std::vector<std::string> arguments{"blocks", "--count",  "20",  "--seconds",
                                           "0.02",   "--warmup", "0.01"};
  const Outcome table = run(with(arguments, {"--sweep"}));
  CAPTURE(table.text);
  CHECK(table.exit_code == 0);
  for (int size = 1 << 10; size <= 256 << 10; size *= 2)
    CHECK(contains(table.text, std::to_string(size) + "     20  "));
  for (const char* operation : {"write", "read"}) {
    const json out = report(with(arguments, {"--sweep", "--naive", "--prepared", "--sizes", "1K,4K", "--op",
                                             operation, "--provider", "shm"}));
    CHECK(out["face"] == "peer");
    CHECK(contains(out["limit"]["name"], "memcpy"));
    const json rows = rows_of(out);
    CHECK(rows.size() == 2);
    for (const json& row : rows) {
      CHECK(row["limit_gb_per_s"] > 0);
      CHECK(row["prepared_gb_per_s"] > 0);
      CHECK(row["prepared_ratio_to_limit"] > 0);
      CHECK(row["ratio_to_naive"].get<double>() ==
            doctest::Approx(row["gb_per_s"].get<double>() / row["naive_gb_per_s"].get<double>()));
    }
  }
  const json one = report(with(arguments, {"--naive", "--size", "2K", "--provider", "tcp"}));
  CHECK(rows_of(one).size() == 1);
  for (const char* flag : {"--naive", "--prepared"}) {
    const Outcome wrong = run(with(arguments, {flag, "--face", "channel", "--provider", "tcp"}));
    CHECK(wrong.exit_code == 2);
    CHECK(contains(wrong.text, flag));
  }
}

TEST_CASE("broadcast: a tree and reads from the owner in turns, and two copies leave the owner") {
  for (const char* provider : {"tcp", "shm"}) {
    const json out =
        report({"broadcast", "--size", "8M", "--readers", "3", "--rounds", "2", "--provider", provider});
    CAPTURE(out.dump());
    CHECK(out["verified"] == true);
    CHECK(out["provider"] == provider);
    CHECK(out["tree_copies_from_owner"] == 2);
    CHECK(out["tree_bytes_from_owner"] == 16 << 20);
    CHECK(out["direct_copies_from_owner"] == 3);
    CHECK(out["bar_copies"] == true);
    CHECK(out["bar"] == true);
    for (const char* figure : {"ratio", "tree_s", "direct_s", "tree_gb_per_s", "direct_gb_per_s"})
      CHECK(out[figure] > 0);
  }
  const json chain =
      report({"broadcast", "--size", "1M", "--readers", "2", "--fan-out", "1", "--rounds", "1"});
  CHECK(chain["tree_copies_from_owner"] == 1);
}

}  // namespace
}  // namespace slime::bench::program_test
