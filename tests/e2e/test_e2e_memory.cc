// A server below a ceiling of memory lives on with what peers make it hold: a caller that stops
// reading, and requests that wait for a worker. SLIME_SOAK=1: 200 replies of 10 MiB, 100 requests
// of 20 MiB. A program of its own: it limits, stops and kills processes.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "base/str.h"
#include "rpc/limits.h"
#include "tests/agent/agents.h"
#include "tests/support/ceiling.h"
#include "tests/support/eventually.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"

namespace slime::test {
namespace {

constexpr std::uint64_t kMib = 1 << 20;
constexpr int kWorkers = 4;
const Nanos kReady = patient(seconds(60));
// The caller fills 2 GiB in a soak, which takes a busy machine a while.
constexpr int kSlowSeconds = 600;
const Nanos kSlow = patient(seconds(kSlowSeconds));

struct Sizes {
  std::uint64_t budget;  // of the process; a connection has a quarter
  int replies;
  std::uint64_t reply;
  int requests;
  std::uint64_t request;
  int seconds;  // until the calls of the caller that stops are late
  [[nodiscard]] std::uint64_t share() const { return budget / 4; }
  // Sums the connection's share, the bodies kept for reuse, the bodies that handlers are making,
  // and the process itself. The peers ask for much more.
  [[nodiscard]] std::uint64_t ceiling() const {
    return share() + rpc::limits::kLargeBodiesBytes + kWorkers * reply + 32 * kMib;
  }
};
Sizes sizes() {
  if (setting("SLIME_SOAK", 0) != 0) return {256 * kMib, 200, 10 * kMib, 100, 20 * kMib, 10};
  return {64 * kMib, 100, 4 * kMib, 60, 4 * kMib, 3};
}

Process spawn(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program_beside_this("memory_peer"));
  return take(Process::spawn(std::move(arguments)));
}

// A server below a ceiling.
class Server {
 public:
  Server(const Sizes& sizes, int workers)
      : ceiling_(sizes.ceiling()),
        process_(spawn({"serve", ceiling_.argument(), str(sizes.budget), str(workers), str(sizes.reply)})) {
    const std::string ready = take(process_.read_line(kReady));
    REQUIRE_MESSAGE(ready.rfind("READY ", 0) == 0, ready);
    address_ = ready.substr(6);
  }
  [[nodiscard]] const std::string& address() const { return address_; }
  void open() { REQUIRE(process_.write_line("open").ok()); }
  std::string info() {
    REQUIRE(process_.write_line("info").ok());
    return take(process_.read_line(kReady));
  }
  std::int64_t count(std::string_view key) { return number_in(info(), key); }
  // Requests that have come and are not answered.
  std::int64_t unanswered() {
    const std::string now = info();
    return number_in(now, "queued") + number_in(now, "running");
  }
  std::uint64_t peak() { return peak_resident_bytes(process_.pid()).value_or(~std::uint64_t{0}); }
  void ends_well() {
    process_.close_stdin();
    CHECK(take(process_.wait(kReady)).success());
  }
  void report(const char* when) {
    MESSAGE(when, ": ceiling ", ceiling_.bytes() / kMib, " MiB (", ceiling_.argument(), "), peak resident ",
            peak() / kMib, " MiB");
    CHECK(peak() <= ceiling_.bytes());
  }

 private:
  Ceiling ceiling_;
  Process process_;
  std::string address_;
};

Process start_caller(Server& server, const char* method, int count, std::uint64_t bytes, int seconds) {
  Process out = spawn({"call", server.address(), method, str(count), str(bytes), str(seconds)});
  REQUIRE(take(out.read_line(kSlow)) == "SENT");
  REQUIRE(eventually([&] { return server.unanswered() == count; }));
  return out;
}

}  // namespace

TEST_CASE("a ceiling ends a process that goes beyond it, and no other") {
  const Ceiling ceiling(64 * kMib);
  Process within = spawn({"fill", ceiling.argument(), str(16 * kMib)});
  CHECK(take(within.read_line(kReady)) == "FILLED 1");
  CHECK(take(within.wait(kReady)).success());
  Process beyond = spawn({"fill", ceiling.argument(), str(65 * kMib + kCeilingSlack)});
  CHECK(!beyond.read_line(kReady).has_value());
  CHECK(!take(beyond.wait(kReady)).success());
}

TEST_CASE("replies to a caller that has stopped are refused beyond the bound, revoked later, and freed") {
  const Sizes size = sizes();
  const auto fitting = static_cast<std::int64_t>(size.share() / size.reply);
  Server server(size, kWorkers);
  Process caller = start_caller(server, "reply", size.replies, 1, size.seconds);
  REQUIRE(caller.stop().ok());
  const TimePoint stopped = steady_clock().now();
  server.open();
  CHECK(eventually([&] { return server.count("over_budget") == size.replies - fitting; }));
  CHECK(server.count("held_bytes") == fitting * static_cast<std::int64_t>(size.reply));
  server.report("replies that wait");
  REQUIRE(eventually([&] { return server.count("answers_revoked") == fitting; }));
  const Nanos revoked = steady_clock().now() - stopped;
  CHECK(revoked < patient(seconds(size.seconds)) + rpc::limits::kAnswerGrace + patient(seconds(2)));
  CHECK(server.count("held_bytes") == 0);
  REQUIRE(caller.resume().ok());
  const std::string ended = take(caller.read_line(kReady));
  MESSAGE("the calls ended: ", ended);
  int ok = -1, exhausted = -1, late = -1;
  REQUIRE(std::sscanf(ended.c_str(), "ok %d exhausted %d late %d", &ok, &exhausted, &late) == 3);
  CHECK(ok == 0);
  CHECK(exhausted + late == size.replies);  // so none ended otherwise
  REQUIRE(caller.write_line("again").ok());
  CHECK(take(caller.read_line(kReady)) == Status().to_string());
  server.report("after a call more");
  server.ends_well();
}

TEST_CASE("large requests wait with their caller, and are served once there is room") {
  const Sizes size = sizes();
  int workers = 1;
  std::int64_t fitting = 1;
  SUBCASE("for a worker") {}
  SUBCASE("for memory") {
    workers = size.requests;
    fitting = static_cast<std::int64_t>(size.share() / size.request);
  }
  Server server(size, workers);
  Process caller = start_caller(server, "take", size.requests, size.request, kSlowSeconds);
  REQUIRE(eventually([&] { return server.count("running") == fitting; }));
  CHECK(server.count("held_bytes") == fitting * static_cast<std::int64_t>(size.request));
  server.report("requests that wait");
  server.open();
  CHECK(take(caller.read_line(kSlow)) == str("ok ", size.requests, " exhausted 0 late 0"));
  CHECK(server.count("over_budget") == 0);
  CHECK(eventually([&] { return server.count("held_bytes") == 0; }));
  server.report("after all were served");
  server.ends_well();
}

}  // namespace slime::test
