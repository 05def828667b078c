// What `slime bench ctrl` is made of, without a server: who must have heard of whose death, HTTP as text, and
// how its report is shown.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "bench/bench.h"
#include "bench/ctrl_bench.h"
#include "bench/ctrl_deaths.h"
#include "bench/ctrl_http.h"
#include "bench/present.h"
#include "tests/support/folder.h"

namespace slime::bench::ctrl_test {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr std::uint64_t kDead = 77;

TimePoint at(Nanos since) { return TimePoint(1h) + since; }

// Three agents in one scope with leases of 10 s; the one in the last place falls silent after a heartbeat
// that went from 5 s to 6 s. Slack 1 s: from 17 s on each heartbeat must have brought it.
struct OneDeath {
  Deaths deaths{1, 3, 10s, 1s};
  OneDeath() {
    for (std::size_t slot = 0; slot < 3; ++slot) deaths.joined(0, slot, at(0s));
    deaths.died(0, 2, kDead, at(5s), at(6s));
  }
};

TEST_CASE("a death that everybody hears of in time is a pair for each living agent of the scope") {
  OneDeath one;
  CHECK(one.deaths.heard(0, 0, kDead, at(15500ms)));
  one.deaths.caught_up(0, 0, at(16500ms));  // need not have heard yet, and has
  CHECK_FALSE(one.deaths.settled());
  one.deaths.caught_up(0, 0, at(18s));
  CHECK(one.deaths.heard(0, 1, kDead, at(18s)));
  one.deaths.caught_up(0, 1, at(17500ms));
  CHECK(one.deaths.settled());
  const auto figures = one.deaths.finish();
  CHECK(figures.deaths == 1);
  CHECK(figures.pairs == 2);
  CHECK(figures.late == 0);
  CHECK(figures.never == 0);
  CHECK(figures.early == 0);
  CHECK(figures.delay.count() == 2);
  CHECK(figures.delay_max == 2s);  // after 16 s, the last moment of the lease
}

TEST_CASE(
    "a heartbeat sent after the slack that does not bring it is late, and heard later it is not never") {
  OneDeath one;
  one.deaths.caught_up(0, 0, at(16900ms));  // no harm yet
  one.deaths.caught_up(0, 0, at(17s));
  one.deaths.caught_up(0, 1, at(17s));
  one.deaths.heard(0, 1, kDead, at(20s));
  const auto figures = one.deaths.finish();
  CHECK(figures.pairs == 2);
  CHECK(figures.late == 2);
  CHECK(figures.never == 1);
}

TEST_CASE("what an agent still owes at the end it never heard") {
  OneDeath one;
  one.deaths.caught_up(0, 0, at(16s));
  const auto figures = one.deaths.finish();
  CHECK(figures.pairs == 2);
  CHECK(figures.never == 2);
}

TEST_CASE("agents that came after the death, or died before it was due, owe nothing") {
  OneDeath one;
  one.deaths.joined(0, 2, at(15s));                  // registered when it may have expired already
  one.deaths.died(0, 0, kDead + 1, at(7s), at(8s));  // before it sent a heartbeat that counts
  one.deaths.heard(0, 1, kDead, at(16s));
  one.deaths.heard(0, 1, kDead + 1, at(18s));
  one.deaths.heard(0, 2, kDead + 1, at(18s));
  one.deaths.caught_up(0, 1, at(19s));
  one.deaths.caught_up(0, 2, at(19s));
  const auto figures = one.deaths.finish();
  CHECK(figures.deaths == 2);
  CHECK(figures.pairs == 3);
  CHECK(figures.late == 0);
}

TEST_CASE("heard before the lease can have ended is too early, and of a stranger is told") {
  OneDeath one;
  CHECK(one.deaths.heard(0, 0, kDead, at(14s)));
  CHECK_FALSE(one.deaths.heard(0, 0, 1234, at(14s)));
  CHECK(one.deaths.finish().early == 1);
}

TEST_CASE("who registers between a death that came early and the end of its lease owes nothing") {
  OneDeath one;
  one.deaths.joined(0, 1, at(12s));
  CHECK(one.deaths.heard(0, 0, kDead, at(14s)));
  one.deaths.caught_up(0, 0, at(18s));
  one.deaths.caught_up(0, 1, at(18s));
  const auto figures = one.deaths.finish();
  CHECK(figures.pairs == 1);
  CHECK(figures.late == 0);
}

TEST_CASE("who is not in a list of the living is known to be dead, at any time; who is in it is not") {
  OneDeath one;
  one.deaths.listed(0, 0, {1, 2}, at(14s));
  one.deaths.listed(0, 1, {1, 2, kDead}, at(16s));
  one.deaths.caught_up(0, 0, at(18s));
  one.deaths.caught_up(0, 1, at(18s));
  const auto figures = one.deaths.finish();
  CHECK(figures.pairs == 2);
  CHECK(figures.late == 1);
  CHECK(figures.early == 0);
}

TEST_CASE("requests as text") {
  const RequestHead head{"127.0.0.1:1", "Bearer secret", true};
  CHECK(
      post_text(head, "/v1/peers", "{}") ==
      "POST /v1/peers HTTP/1.1\r\nHost: 127.0.0.1:1\r\nAuthorization: Bearer secret\r\nConnection: close\r\n"
      "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  CHECK(get_text({"h:1", "", false}, "/x") == "GET /x HTTP/1.1\r\nHost: h:1\r\n\r\n");
}

TEST_CASE("an answer is read once it is whole") {
  const std::string whole = "HTTP/1.1 404 Not Found\r\ncontent-length:  3\r\nConnection: Close\r\n\r\nabc";
  HttpAnswer answer;
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK(parse_answer(whole.substr(0, size), answer) == Parsed::kPart);
  const std::string more = whole + "more";  // the answer's body lies in it
  REQUIRE(parse_answer(more, answer) == Parsed::kWhole);
  CHECK(answer.status == 404);
  CHECK(answer.close);
  CHECK(answer.bytes == whole.size());
  CHECK(answer.body == "abc");
  CHECK(parse_answer("HTTP/1.1 200 OK\r\n\r\n", answer) == Parsed::kBad);  // nobody can tell where it ends
  CHECK(parse_answer("SSH-2.0-something\r\n\r\n", answer) == Parsed::kBad);
}

TEST_CASE("what an agent reads in the bodies") {
  const auto grant = parse_grant(R"({"incarnation":5,"server_epoch":1,"revision":9,"ttl_ms":1500})");
  REQUIRE(grant.has_value());
  CHECK(grant->incarnation == 5);
  CHECK(grant->revision == 9);
  CHECK(grant->ttl_ms == 1500);
  CHECK_FALSE(parse_grant("{}").has_value());

  const auto quiet = parse_news(R"({"server_epoch":1,"revision":9,"resync":false,"more":false,"events":[]})");
  REQUIRE(quiet.has_value());
  CHECK(quiet->revision == 9);
  CHECK(quiet->events == 0);
  const auto loud = parse_news(R"({"server_epoch":1,"revision":9,"resync":true,"more":true,"events":[)"
                               R"({"revision":8,"event":"registered","incarnation":3},)"
                               R"({"revision":9,"event":"expired","incarnation":4}]})");
  REQUIRE(loud.has_value());
  CHECK(loud->resync);
  CHECK(loud->more);
  CHECK(loud->events == 2);
  CHECK(loud->expired == std::vector<std::uint64_t>{4});
  CHECK_FALSE(parse_news("[]").has_value());
  CHECK_FALSE(parse_news("{\"revision\":1}").has_value());

  const auto page = parse_peers(R"({"revision":4,"peers":[{"incarnation":1},{"incarnation":2}],"next":"b"})");
  REQUIRE(page.has_value());
  CHECK(page->revision == 4);
  CHECK(page->incarnations == std::vector<std::uint64_t>{1, 2});
  CHECK(page->next == "b");
}

TEST_CASE("options that cannot be measured are refused") {
  CHECK(CtrlOptions{}.validate().ok());
  CtrlOptions options;
  options.agents = {10, 0};
  CHECK(options.validate().code() == Code::kInvalidArgument);
  options = {};
  options.ttl_s = options.heartbeat_s;
  CHECK(options.validate().code() == Code::kInvalidArgument);
  options = {};
  options.pids = {1};
  CHECK(options.validate().code() == Code::kInvalidArgument);
  options = {};
  options.urls = {"http://127.0.0.1:1"};
  options.server_flags = "--x";
  CHECK(options.validate().code() == Code::kInvalidArgument);
  options = {};
  options.urls = {"http://127.0.0.1:1"};
  options.stores = {"memory"};
  CHECK(options.validate().code() == Code::kInvalidArgument);
}

json latencies(double p50) { return {{"p50", p50}, {"p99", 2 * p50}, {"p999", 3 * p50}, {"max", 4 * p50}}; }

json sample_run(unsigned agents, json server) {
  const json timed = {{"count", 10}, {"from_due_ms", latencies(0.5)}, {"from_sent_ms", latencies(0.25)}};
  return {{"agents", agents},
          {"scopes", 2},
          {"store", server.is_null() ? json(nullptr) : json("redis")},
          {"connections", "new"},
          {"heartbeat_s", 5.0},
          {"ttl_s", 60.0},
          {"rate_per_s", 1.0},
          {"rate_reached_per_s", 1.0},
          {"seconds", 60.0},
          {"requests_per_s", agents / 5.0},
          {"events_per_s", 20.0},
          {"heartbeats", timed},
          {"registrations", timed},
          {"errors", {{"404", 3}}},
          {"lost", 3},
          {"unknown", 0},
          {"skipped", 0},
          {"follow_ups", 0},
          {"resyncs", 0},
          {"reconnects", 0},
          {"timeouts", 0},
          {"idle_closed", 0},
          {"deaths",
           {{"count", 60},
            {"pairs", 5000},
            {"late", 2},
            {"never", 1},
            {"early", 0},
            {"slack_s", 1.0},
            {"delay_s", {{"p50", 2.5}, {"p99", 4.9}, {"max", 5.0}}}}},
          {"store_server", server},
          {"server", std::move(server)},
          {"generator",
           {{"cpu_cores", 0.95},
            {"cpu_us_per_request", 90.0},
            {"lag_ms", latencies(0.125)},
            {"bottleneck", true}}},
          {"verified", false}};
}

json sample() {
  return {{"bench", "ctrl"},
          {"verified", false},
          {"machine",
           {{"cpu", "a processor"},
            {"cores", 2},
            {"kernel", "6.1"},
            {"load", 0.5},
            {"time", "2026-01-01T00:00:00Z"}}},
          {"runs",
           {sample_run(100, {{"processes", 1},
                             {"cpu_cores", 0.25},
                             {"cpu_us_per_request", 120.0},
                             {"resident_mib", 12.5},
                             {"resident_peak_mib", 13.5}}),
            sample_run(1000, nullptr)}}};
}

bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

TEST_CASE("a report for people says what failed and who was the bottleneck") {
  const std::string text = format_report(sample().dump());
  CAPTURE(text);
  CHECK(contains(text, "ctrl on redis, 100 agents in 2 scopes, new connections"));
  CHECK(contains(text, "server: 0.250 cores"));
  CHECK(contains(text, "its redis: 0.250 cores"));
  CHECK(contains(text, "ctrl, 1000 agents"));
  CHECK(contains(text, "5000 times an agent had to hear of one: 2 late (slack 1 s), 1 never"));
  CHECK(contains(text, "lost agents: 3; errors: 404: 3"));
  CHECK(contains(text, "IT WAS THE BOTTLENECK"));
  CHECK(contains(text, "FAILED"));
}

TEST_CASE("its table goes between its own marks, and its plot has the server where it is known") {
  const test::Folder folder;
  std::ofstream(folder.file("ctrl.json")) << sample().dump();
  std::ofstream(folder.file("page.md")) << "a\n<!-- ctrl: begin -->\nold\n<!-- ctrl: end -->\nz\n";
  const Status tables = print_tables(folder.file("ctrl.json"), folder.file("page.md"));
  REQUIRE_MESSAGE(tables.ok(), tables.to_string());
  std::stringstream page;
  page << std::ifstream(folder.file("page.md")).rdbuf();
  CHECK(contains(page.str(), "| 100, 2 | redis | new | 20 | 0.50, 1.00, 1.50, 2.0 |"));
  CHECK(contains(page.str(), "| 0.250, 120 | 12.5, 13.5 | 0.250, 13.5 | 5000, 2, 1 | 2.50, 5.00 | 3 |"));
  CHECK_FALSE(contains(page.str(), "old"));
  const Status plots = write_plots(folder.file("ctrl.json"), folder.file("plots"));
  REQUIRE_MESSAGE(plots.ok(), plots.to_string());
  std::stringstream picture;
  picture << std::ifstream(folder.file("plots/ctrl.svg")).rdbuf();
  CHECK(contains(picture.str(), "13.5"));
  CHECK(contains(picture.str(), ">1000<"));
  for (const char* no_number : {"\"nan", "\"-nan", "\"inf", ">nan<", ">inf<"})
    CHECK_FALSE(contains(picture.str(), no_number));
}

}  // namespace
}  // namespace slime::bench::ctrl_test
