// The parts of `slime bench ctrl`, without a server: which agents must have heard of which death,
// the options, and how a report is shown.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "bench/bench.h"
#include "bench/ctrl_deaths.h"
#include "bench/ctrl_http.h"

namespace slime::bench::ctrl_test {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr std::uint64_t kDead = 77;

TimePoint at(Nanos since) { return TimePoint(1h) + since; }

// Three agents in one scope with leases of 10 s; the one in the last place falls silent after a
// heartbeat that went from 5 s to 6 s. Slack 1 s: from 17 s on each heartbeat must have brought it.
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

TEST_CASE("an agent that was late and died before it heard is late, not never") {
  OneDeath one;
  one.deaths.caught_up(0, 0, at(17s));
  one.deaths.died(0, 0, kDead + 1, at(17s), at(18s));
  one.deaths.heard(0, 1, kDead, at(16s));
  one.deaths.heard(0, 1, kDead + 1, at(35s));
  const auto figures = one.deaths.finish();
  CHECK(figures.late == 1);
  CHECK(figures.never == 0);
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
  CHECK(parse_answer("HTTP/1.1 200 OK\r\n\r\n", answer) == Parsed::kBad);  // the end of the body is unknown
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

TEST_CASE("a report is a table with a row for each figure, and each run has its own") {
  const json run = {{"agents", 100},
                    {"server", {{"cpu_cores", 0.25}}},
                    {"errors", {{"not_found", 3}}},
                    {"store_server", nullptr},
                    {"lost", 3},
                    {"verified", false}};
  json other = run;
  other["agents"] = 1000;
  const std::string text = format_report(json{
      {"bench", "ctrl"},
      {"machine", {{"cpu", "a processor"}}},
      {"runs", {run, other}},
      {"verified", false}}.dump());
  CHECK(text ==
        "agents            100\nerrors.not_found  3\nlost              3\nserver.cpu_cores  0.25\n"
        "verified          false\n\n"
        "agents            1000\nerrors.not_found  3\nlost              3\nserver.cpu_cores  0.25\n"
        "verified          false\n\n"
        "bench     ctrl\nverified  false");
}

TEST_CASE("a figure of a table has its unit in its name, and the least and the largest of its rounds") {
  const json report = {{"bench", "rpc"},
                       {"p50_us", 7.5},
                       {"ops_per_s", 123456.0},
                       {"spread", {{"p50_us", {7.0, 8.25}}, {"ops_per_s", {123456.0, 123456.0}}}},
                       {"limit", {{"name", "raw TCP echo"}, {"value", 2.5}, {"spread", {2.0, 3.0}}}},
                       {"ratio_to_limit", 3.0},
                       {"ratio_spread", {2.5, 3.5}}};
  CHECK(format_report(report.dump()) ==
        "bench           rpc\n"
        "limit.name      raw TCP echo\n"
        "limit.value     2.5  (2 to 3)\n"
        "ops_per_s       123456\n"
        "p50_us          7.5  (7 to 8.25)\n"
        "ratio_to_limit  3  (2.5 to 3.5)");
}

}  // namespace
}  // namespace slime::bench::ctrl_test
