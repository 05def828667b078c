// How long a peer may be unreachable: what is derived from it, and that TCP connections end by it
// and not before.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/str.h"
#include "tests/support/blackhole.h"
#include "tests/transport/socket_fixture.h"
#include "transport/outage.h"

namespace slime::transport::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A busy machine may be so late with a timer of the kernel.
const Nanos kLate = test::patient(seconds(2));
// An outage that proves that the default one is tolerated: keepalive has an interval of 1 s more
// than that.
constexpr Nanos kExactOutage = limits::kOutageTolerated + milliseconds(500);

TEST_CASE("what is derived from the outage tolerated, for several outages") {
  struct Row {
    Nanos outage;
    int idle, interval, probes, silent_ms;
    int timeout, retry_count;
  };
  for (const Row& row : std::vector<Row>{
           {seconds(1), 1, 1, 2, 3'000, 16, 4},
           {milliseconds(1500), 1, 1, 3, 4'000, 16, 6},
           {seconds(2), 1, 1, 3, 4'000, 17, 4},
           {seconds(5), 1, 1, 6, 7'000, 18, 5},  // the default
           {seconds(10), 1, 1, 11, 12'000, 19, 5},
           {seconds(30), 1, 1, 31, 32'000, 20, 7},
           {seconds(60), 1, 1, 61, 62'000, 21, 7},
           {seconds(61), 2, 2, 32, 66'000, 22, 4},
           {seconds(600), 10, 10, 61, 620'000, 25, 5},
           {seconds(3600), 60, 60, 61, 3'720'000, 27, 7},
       }) {
    CAPTURE(row.outage.count());
    const Keepalive keepalive = keepalive_for(row.outage);
    CHECK(keepalive.idle_seconds == row.idle);
    CHECK(keepalive.interval_seconds == row.interval);
    CHECK(keepalive.probes == row.probes);
    CHECK(keepalive.silent_ms() == row.silent_ms);
    const RetryPolicy retries = retries_for(row.outage);
    CHECK(retries.timeout == row.timeout);
    CHECK(retries.retry_count == row.retry_count);
  }
}

TEST_CASE("every outage is outlasted by the last question and the last retry, and not by much") {
  for (Nanos outage = limits::kOutageMin; outage <= limits::kOutageMax; outage += milliseconds(97)) {
    CAPTURE(outage.count());
    const Keepalive keepalive = keepalive_for(outage);
    // Questions that all leave within the outage, the first of them as it begins.
    CHECK(keepalive.interval() * (keepalive.probes - 1) >= outage);
    CHECK(keepalive.probes <= 127);  // of the kernel
    CHECK(milliseconds(keepalive.silent_ms()) <= outage + 3 * keepalive.interval());
    const RetryPolicy retries = retries_for(outage);
    CHECK(retries.one_try() * retries.retry_count >= outage);
    CHECK(retries.one_try() * (retries.retry_count - 1) < outage);
    CHECK(retries.one_try() / 2 * 7 < outage);  // a shorter timeout would not do
    CHECK(retries.retry_count <= 7);
  }
}

TEST_CASE("a timeout or a number of retries that is given is kept") {
  struct Row {
    int timeout, retry_count;
    RetryPolicy expected;
  };
  for (const Row& row : std::vector<Row>{{14, -1, {14, 7}},
                                         {14, 3, {14, 3}},
                                         {20, 0, {20, 0}},
                                         {-1, 7, {18, 7}},
                                         {-1, 2, {20, 2}},
                                         {-1, 1, {21, 1}},
                                         {-1, 0, {21, 0}}}) {
    CAPTURE(row.timeout);
    CAPTURE(row.retry_count);
    const RetryPolicy got = retries_for(seconds(5), row.timeout, row.retry_count);
    CHECK(got.timeout == row.expected.timeout);
    CHECK(got.retry_count == row.expected.retry_count);
  }
}

TEST_CASE("the environment gives seconds in range, and everything else is refused with the range") {
  const char* const kName = "SLIME_OUTAGE_TOLERATED";
  const char* const set = std::getenv(kName);
  const std::string before = set == nullptr ? "" : set;
  ::unsetenv(kName);
  CHECK(*outage_from_environment() == limits::kOutageTolerated);
  for (const auto& [text, expected] : std::vector<std::pair<const char*, Nanos>>{
           {"1", seconds(1)}, {"2.5", milliseconds(2500)}, {"3600", seconds(3600)}}) {
    ::setenv(kName, text, 1);
    const auto outage = outage_from_environment();
    REQUIRE_MESSAGE(outage.has_value(), outage.status().to_string());
    CHECK(*outage == expected);
  }
  for (const char* text : {"", "five", "5s", " 5", "0", "0.9", "-5", "3601", "1e300", "nan", "inf"}) {
    CAPTURE(text);
    ::setenv(kName, text, 1);
    const Status status = outage_from_environment().status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.text().find(str(kName, " is '", text, "', must be 1 to 3600 s")) == 0);
  }
  if (set == nullptr)
    ::unsetenv(kName);
  else
    ::setenv(kName, before.c_str(), 1);
}

TEST_CASE("a port takes no outage that is out of range") {
  for (const Nanos outage :
       {Nanos::zero(), Nanos(-1), Nanos(seconds(1)) - Nanos(1), Nanos(seconds(3601)), Nanos::max()}) {
    const Status status = PortOptions{.outage_tolerated = outage}.validate();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.text().find("PortOptions::outage_tolerated is ") == 0);
    CHECK(status.text().find("must be 1 to 3600 s") != std::string::npos);
  }
}

// --------------------------------------------------------------------------------------- over real
// sockets

// Two ends over a TCP connection, with what was sent on it.
struct Line {
  explicit Line(SocketFixture& sockets) : fixture(sockets), c(sockets) {}

  // Sends a message of `bytes` from one end to the other.
  void send_from(Endpoint& from, std::size_t bytes) {
    sent.emplace_back();
    posted = testing::send(from, ByteVector(bytes), sent.back());
  }
  // A message each way. False when the connection ends before.
  bool round_trip() {
    const std::size_t had_a = c.receiver_a.messages.size();
    const std::size_t had_b = c.receiver_b.messages.size();
    send_from(c.a(), 100);
    if (posted.ok()) send_from(c.b(), 100);
    if (!posted.ok()) return false;
    const auto came = [&] {
      return c.receiver_a.messages.size() > had_a && c.receiver_b.messages.size() > had_b;
    };
    return fixture.until([&] { return closed() || came(); }) && !closed();
  }
  [[nodiscard]] bool closed() const { return c.receiver_a.closed + c.receiver_b.closed > 0; }
  void cut_off() {
    cut_at = steady_clock().now();
    cut.emplace(fixture.address(c.pair));
  }
  // Returns how long the connection was cut, which is at least `outage`.
  Nanos mend_after(Nanos outage) {
    fixture.pass(cut_at + outage - steady_clock().now());
    cut.reset();
    return steady_clock().now() - cut_at;
  }

  SocketFixture& fixture;
  std::deque<TestOperation> sent;  // outlive the connection
  Status posted;
  Connection c;
  std::optional<test::Blackhole> cut;
  TimePoint cut_at{};
};

std::unique_ptr<SocketFixture> over_tcp(Nanos outage) {
  auto out = SocketFixture::of("tcp");
  out->open({.outage_tolerated = outage});
  return out;
}

// How long the connection takes to end, which must be the outage tolerated and little more.
void check_end(Line& line, Nanos outage, TimePoint began) {
  REQUIRE(line.fixture.until([&] { return line.c.receiver_a.closed > 0; }));
  const Nanos took = steady_clock().now() - began;
  MESSAGE("ended after ", std::chrono::duration_cast<milliseconds>(took).count(), " ms");
  CHECK(took >= outage);
  CHECK(took <= milliseconds(keepalive_for(outage).silent_ms()) + kLate);
  CHECK(line.c.receiver_a.close_reason.code() == Code::kUnavailable);
  CHECK(line.c.receiver_a.close_reason.text().find("the peer's host is silent") != std::string::npos);
}

TEST_CASE("an unreachable peer is gone after the outage tolerated and two intervals, and not before") {
  const Nanos outage = seconds(2);
  bool sends = false;
  SUBCASE("while a reply is awaited") {}
  SUBCASE("while what was sent is not acknowledged") { sends = true; }
  const auto fixture = over_tcp(outage);
  Line line(*fixture);
  REQUIRE(line.round_trip());
  line.c.a().set_awaiting(true);
  line.cut_off();
  const TimePoint began = steady_clock().now();
  if (sends) line.send_from(line.c.a(), 1000);
  check_end(line, outage, began);
}

// Cuts ten connections for the default outage, one after the other, so that each outage begins at
// another time after the last sign of life. Returns the longest outage: on a busy machine it may
// exceed kExactOutage, and a connection may end then. Otherwise checks that all connections work.
Nanos check_survival() {
  const auto fixture = over_tcp(limits::kOutageTolerated);
  constexpr int kLines = 10;
  constexpr Nanos kStep = milliseconds(200);
  std::deque<Line> lines;
  for (int i = 0; i < kLines; ++i) REQUIRE(lines.emplace_back(*fixture).round_trip());
  for (Line& line : lines) {
    REQUIRE(line.round_trip());
    line.c.a().set_awaiting(true);
  }
  for (std::size_t i = 0; i < kLines; ++i) {
    lines[i].cut_off();
    if (i % 3 == 0) lines[i].send_from(lines[i].c.a(), 1000);
    fixture->pass(kStep);
  }
  Nanos longest{};
  for (Line& line : lines) longest = std::max(longest, line.mend_after(limits::kOutageTolerated));
  if (longest > kExactOutage) return longest;
  for (Line& line : lines) CHECK_MESSAGE(line.round_trip(), line.c.receiver_a.close_reason.text());
  return longest;
}

TEST_CASE("an outage of five seconds is no death by default, whenever it begins and whatever is under way") {
  constexpr int kAttempts = 5;
  Nanos longest = Nanos::max();
  for (int i = 0; i < kAttempts && longest > kExactOutage; ++i) longest = check_survival();
  CHECK_MESSAGE(longest <= kExactOutage, "the machine is too busy for an outage of five seconds");
}

TEST_CASE("a stopped peer whose sockets are full is gone after the outage tolerated, too") {
  const Nanos outage = seconds(1);
  const auto fixture = over_tcp(outage);
  constexpr std::size_t kBytes = 32 << 20;
  GuardedRegion here(fixture->device(0), kBytes, Rights::kLocal, 1);
  GuardedRegion there(fixture->device(1), kBytes, Rights::kReadWrite, 2);
  TestOperation write;
  Line line(*fixture);
  const RemoteRegion remote = share(line.c.a(), there.region);
  REQUIRE(line.round_trip());
  fixture->freeze_b(line.c.pair);
  const TimePoint began = steady_clock().now();
  const CopyBlock copy{&here.region, 0, &remote, 0, kBytes};
  REQUIRE(line.c.a().write(std::span(&copy, 1), write).ok());
  check_end(line, outage, began);
  CHECK(write.last.code() == Code::kUnavailable);
  fixture->thaw_b(line.c.pair);
}

}  // namespace
}  // namespace slime::transport::testing
