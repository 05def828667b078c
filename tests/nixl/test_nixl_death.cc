// Tests how transfers end when the process at the other end is killed, stopped or replaced. Uses
// real processes and signals.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/str.h"
#include "tests/nixl/peer_process.h"
#include "tests/nixl/pieces.h"
#include "tests/support/eventually.h"
#include "tests/support/sanitizers.h"

namespace slime::test::nixl::death_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What moves well within the stall timeout.
constexpr std::size_t kBytes = std::size_t{kSanitized ? 2 : 16} << 20;
// Within it a busy machine connects two processes.
const Nanos kStall = patient(milliseconds(700));

std::string in_ms(Nanos time) { return str(std::chrono::duration_cast<milliseconds>(time).count(), " ms"); }

// How long a transfer may take to end after its peer's process has died: 0.1 s where this program
// runs alone. scripts/test.sh runs more beside it, and sets a larger bound for the tests of
// tests/e2e and for this.
Nanos longest_end() { return milliseconds(setting("SLIME_E2E_BOUND_MS", kSanitized ? 1000 : 100)); }
// With a peer that neither answers nor dies: the stall timeout, and a second.
Nanos longest_stall() {
  return kStall + std::max<Nanos>(seconds(1), milliseconds(setting("SLIME_E2E_BOUND_MS", 1000))) *
                      (kSanitized ? 3 : 1);
}

nixl_b_params_t impatient() {
  return {{"stall_timeout_ms", str(std::chrono::duration_cast<milliseconds>(kStall).count())}};
}

struct Victim : PeerProcess {
  explicit Victim(const std::vector<std::string>& params = {}) : PeerProcess("victim", kBytes, params) {}
};

// "127.0.0.1:PORT" in connection info, where it is text.
std::string listen_of(const Metadata& metadata) {
  const auto at = metadata.conn_info.find("127.0.0.1:");
  REQUIRE(at != std::string::npos);
  return metadata.conn_info.substr(at);
}

// Waits for each, and returns how long the slowest took.
Nanos wait_for_all(std::vector<Request>& requests, std::vector<nixl_status_t>& out) {
  const TimePoint began = steady_clock().now();
  for (const Request& request : requests) out.push_back(request.wait());
  return steady_clock().now() - began;
}

// Four READs of the victim's region, each into a quarter of `memory`, that were under way for a
// random while.
std::vector<Request> reads_under_way(Rng& rng, Host& host, const Memory& memory, const Victim& victim) {
  std::vector<Request> out;
  for (std::size_t i = 0; i < 4; ++i)
    out.push_back(
        host.prepared(NIXL_READ, "victim", Piece{memory.address() + i * kBytes, victim.address(), kBytes}));
  for (Request& request : out) REQUIRE(request.post("read") >= NIXL_SUCCESS);
  for (std::uint64_t left = rng.below(1U << rng.below(10)); left > 0; --left) {
    if (out[0].check() != NIXL_IN_PROG) break;
    std::this_thread::yield();
  }
  return out;
}

// Each of these ended, and those that say so have all bytes.
int check_reads(const Memory& memory, const std::vector<nixl_status_t>& statuses, std::uint64_t seed) {
  int done = 0;
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    CHECK(statuses[i] != NIXL_IN_PROG);
    if (statuses[i] != NIXL_SUCCESS) continue;
    ++done;
    CHECK(has_pattern(memory.bytes.subspan(i * kBytes, kBytes), seed));
  }
  return done;
}

}  // namespace

TEST_CASE("a killed peer ends transfers at once, and its successor of that name is used, 20 times") {
  Rng rng(seed_of_test());
  const int rounds = scaled(20);
  Host host("survivor", impatient());
  Memory& memory = host.add(4 * kBytes);
  Nanos slowest{};
  int done = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    Victim victim;
    REQUIRE(victim.ask(str("fill ", round)) == "OK");
    // Some users forget the old agent first, others load the new metadata over it.
    if (rng.chance(1, 2)) host.unload("victim");
    REQUIRE(host.load(victim.metadata()) == NIXL_SUCCESS);
    Request write = host.prepared(NIXL_WRITE, "victim", Piece{memory.address(), victim.address(), kBytes});
    fill_pattern(memory.bytes.first(kBytes), 1000 + round);
    REQUIRE(write.run("hello") == NIXL_SUCCESS);
    REQUIRE(victim.ask("take") == "GOT survivor hello");
    REQUIRE(victim.ask(str("matches ", 1000 + round)) == "YES");

    std::vector<Request> reads = reads_under_way(rng, host, memory, victim);
    victim.kill();
    std::vector<nixl_status_t> statuses;
    slowest = std::max(slowest, wait_for_all(reads, statuses));
    done += check_reads(memory, statuses, 1000 + round);
    // What is posted after its death.
    for (Request* const request : {&reads[0], &write, &write}) {
      const TimePoint began = steady_clock().now();
      CHECK(request->run("anybody?") < NIXL_SUCCESS);
      slowest = std::max(slowest, steady_clock().now() - began);
    }
    REQUIRE(slowest < longest_end());
  }
  MESSAGE(str(rounds, " deaths; slowest end: ", in_ms(slowest), "; reads that were complete: ", done));
}

TEST_CASE("transfers with a stopped peer end within the stall timeout, and work once it goes on") {
  Rng rng(seed_of_test());
  Host host("survivor", impatient());
  Memory& memory = host.add(4 * kBytes);
  Victim victim;
  REQUIRE(host.load(victim.metadata()) == NIXL_SUCCESS);
  Nanos slowest{};
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    REQUIRE(victim.ask(str("fill ", round)) == "OK");
    Request write = host.prepared(NIXL_WRITE, "victim", Piece{memory.address(), victim.address(), kBytes});
    Request fresh = host.prepared(NIXL_WRITE, "victim", Piece{memory.address(), victim.address(), 8});
    std::vector<Request> reads = reads_under_way(rng, host, memory, victim);
    REQUIRE(victim.process().stop().ok());
    std::vector<nixl_status_t> statuses;
    slowest = std::max(slowest, wait_for_all(reads, statuses));
    check_reads(memory, statuses, round);
    for (Request* const request : {&reads[0], &write, &fresh}) {
      const TimePoint began = steady_clock().now();
      CHECK(request->run("anybody?") != NIXL_IN_PROG);
      slowest = std::max(slowest, steady_clock().now() - began);
    }
    CHECK(slowest < longest_stall());
    REQUIRE(victim.process().resume().ok());
    fill_pattern(memory.bytes.first(kBytes), 50 + round);
    CHECK(eventually([&] { return write.run("again") == NIXL_SUCCESS; }));
    CHECK(victim.ask(str("matches ", 50 + round)) == "YES");
  }
  MESSAGE(str("slowest end with a stopped peer: ", in_ms(slowest)));
}

TEST_CASE(
    "a handle that a stopped peer holds up is released at once, and its memory is free after its "
    "deregistration") {
  Host host("survivor");
  Memory& fence = host.add(4096);
  Victim victim;
  REQUIRE(victim.ask("fill 1") == "OK");
  REQUIRE(host.load(victim.metadata()) == NIXL_SUCCESS);
  for (const auto operation : {NIXL_READ, NIXL_WRITE}) {
    CAPTURE(operation);
    Memory& memory = host.add(kBytes);
    Request request = host.prepared(operation, "victim", memory.piece(victim.address()));
    REQUIRE(request.run() == NIXL_SUCCESS);
    REQUIRE(victim.process().stop().ok());
    REQUIRE(request.post("never") >= NIXL_SUCCESS);
    const TimePoint began = steady_clock().now();
    REQUIRE(request.release() == NIXL_SUCCESS);
    const TimePoint released = steady_clock().now();
    REQUIRE(host.deregister(memory) == NIXL_SUCCESS);
    const TimePoint deregistered = steady_clock().now();
    MESSAGE(
        str("released in ", in_ms(released - began), ", deregistered in ", in_ms(deregistered - released)));
    CHECK(released - began < patient(milliseconds(200)));
    CHECK(deregistered - released < patient(seconds(4)));  // Slime resets the connection after two
    std::fill(memory.bytes.begin(), memory.bytes.end(), std::byte{0xee});
    REQUIRE(victim.process().resume().ok());
    Request behind = host.prepared(NIXL_READ, "victim", fence.piece(victim.address()));
    CHECK(eventually([&] { return behind.run() == NIXL_SUCCESS; }));
    CHECK(std::all_of(memory.bytes.begin(), memory.bytes.end(),
                      [](std::byte each) { return each == std::byte{0xee}; }));
    host.remove(memory);
  }
}

TEST_CASE("a WRITE that is released before its peer was reached sends nothing, though its memory stays") {
  Host host("survivor");
  Memory& memory = host.add(kBytes);
  Victim victim;
  REQUIRE(victim.ask("fill 1") == "OK");
  REQUIRE(victim.process().stop().ok());
  REQUIRE(host.load(victim.metadata()) == NIXL_SUCCESS);
  fill_pattern(memory.bytes, 2);
  Request request = host.prepared(NIXL_WRITE, "victim", memory.piece(victim.address()));
  REQUIRE(request.post("never") == NIXL_IN_PROG);
  REQUIRE(request.release() == NIXL_SUCCESS);
  REQUIRE(victim.process().resume().ok());
  Memory& other = host.add(8);
  Request behind = host.prepared(NIXL_READ, "victim", other.piece(victim.address()));
  REQUIRE(eventually([&] { return behind.run("behind") == NIXL_SUCCESS; }));
  CHECK(victim.ask("take") == "GOT survivor behind");
  CHECK(victim.ask("matches 1") == "YES");
}

TEST_CASE("handles of a dead process do not reach the one that has its port") {
  Host host("survivor");
  Memory& memory = host.add(kBytes);
  auto first = std::make_unique<Victim>();
  const std::string listen = listen_of(first->metadata());
  REQUIRE(host.load(first->metadata()) == NIXL_SUCCESS);
  const Piece piece{memory.address(), first->address(), kBytes};
  Request posted = host.prepared(NIXL_WRITE, "victim", piece);
  Request fresh = host.prepared(NIXL_WRITE, "victim", piece);
  fill_pattern(memory.bytes, 1);
  REQUIRE(posted.run() == NIXL_SUCCESS);
  first->kill();
  Victim second({str("listen=", listen)});
  REQUIRE(listen_of(second.metadata()) == listen);
  REQUIRE(second.ask("fill 9") == "OK");
  for (int i = 0; i < 3; ++i) {
    CHECK(posted.run("not for you") < NIXL_SUCCESS);
    CHECK(fresh.run("not for you") < NIXL_SUCCESS);
  }
  CHECK(second.ask("matches 9") == "YES");
  REQUIRE(host.load(second.metadata()) == NIXL_SUCCESS);
  Request good = host.prepared(NIXL_WRITE, "victim", Piece{memory.address(), second.address(), kBytes});
  CHECK(good.run("for you") == NIXL_SUCCESS);
  CHECK(second.ask("take") == "GOT survivor for you");
  CHECK(second.ask("matches 1") == "YES");
}

TEST_CASE("an initiator killed in mid-transfer leaves its target working, 10 times") {
  Rng rng(seed_of_test());
  Host target("target", impatient());
  Memory& hit = target.add(kBytes);
  Memory& mine = target.add(kBytes);
  for (int round = 0; round < scaled(10); ++round) {
    CAPTURE(round);
    Victim victim;
    REQUIRE(target.load(victim.metadata()) == NIXL_SUCCESS);
    Metadata metadata = target.metadata();
    std::erase_if(metadata.sections, [&](const auto& each) { return each.address != hit.address(); });
    REQUIRE(victim.ask("load " + metadata.encode()) == "OK");
    REQUIRE(victim.ask("hammer target") == "OK");
    const std::uint64_t wait_for = 1 + rng.below(5);
    std::uint64_t got = 0;
    REQUIRE(eventually([&] {
      got += target.take_notifications().size();
      return got >= wait_for;
    }));
    victim.kill();
    // The bytes that it wrote to are registered, and then free, whatever it was doing.
    Victim next;
    REQUIRE(target.load(next.metadata()) == NIXL_SUCCESS);
    fill_pattern(mine.bytes, round);
    REQUIRE(target.prepared(NIXL_WRITE, "victim", mine.piece(next.address())).run() == NIXL_SUCCESS);
    REQUIRE(next.ask(str("matches ", round)) == "YES");
    target.take_notifications();
  }
  REQUIRE(target.deregister(hit) == NIXL_SUCCESS);
  std::fill(hit.bytes.begin(), hit.bytes.end(), std::byte{0xee});
}

TEST_CASE("notifications to a stopped peer are refused once too many wait, and go on with it") {
  Host host("survivor");
  Victim victim;
  REQUIRE(host.load(victim.metadata()) == NIXL_SUCCESS);
  REQUIRE(host.engine().genNotif("victim", "first") == NIXL_SUCCESS);
  REQUIRE(victim.ask("take") == "GOT survivor first");
  REQUIRE(victim.process().stop().ok());
  const std::string large(std::size_t{1} << 20, 'x');
  int taken = 0;
  while (taken < 1000 && host.engine().genNotif("victim", large) == NIXL_SUCCESS) ++taken;
  MESSAGE(str(taken, " notifications of 1 MiB were taken"));
  CHECK(taken < 1000);
  REQUIRE(victim.process().resume().ok());
  CHECK(eventually([&] { return host.engine().genNotif("victim", "last") == NIXL_SUCCESS; }));
  // A large one is fetched by the receiver, so a small one may overtake it.
  int large_ones = 0;
  int last_ones = 0;
  for (int i = 0; i < taken + 1; ++i) {
    const std::string got = victim.ask("take");
    if (got == "GOT survivor last") ++last_ones;
    if (got == "GOT survivor " + large) ++large_ones;
  }
  CHECK(last_ones == 1);
  CHECK(large_ones == taken);
}

TEST_CASE("a peer that is killed while it is stopped ends transfers, too") {
  Host host("survivor", impatient());
  Memory& memory = host.add(kBytes);
  Victim victim;
  REQUIRE(host.load(victim.metadata()) == NIXL_SUCCESS);
  Request write = host.prepared(NIXL_WRITE, "victim", memory.piece(victim.address()));
  REQUIRE(write.run() == NIXL_SUCCESS);
  REQUIRE(victim.process().stop().ok());
  const nixl_status_t posted = write.post("never");
  victim.kill();
  const TimePoint began = steady_clock().now();
  // Over shm the kernel copies the bytes, so the transfer may be over before the kill.
  const nixl_status_t ended = posted == NIXL_IN_PROG ? write.wait() : posted;
  CHECK(ended != NIXL_IN_PROG);
  if (provider() == "tcp") CHECK(ended < NIXL_SUCCESS);
  CHECK(write.run() < NIXL_SUCCESS);
  CHECK(steady_clock().now() - began < longest_stall());
}

}  // namespace slime::test::nixl::death_test
