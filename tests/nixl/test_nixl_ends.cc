// Handles released and engines destroyed while transfers are under way.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/str.h"
#include "tests/nixl/pieces.h"
#include "tests/support/eventually.h"
#include "tests/support/sanitizers.h"

namespace slime::test::nixl::ends_test {
namespace {

constexpr std::size_t kBytes = std::size_t{kSanitized ? 2 : 16} << 20;

// Lets a random time pass, a whole transfer at the most: as many checks as `rng` says.
void check_for_a_while(Rng& rng, const Request& request) {
  for (std::uint64_t left = rng.below(1U << rng.below(9)); left > 0 && request.check() == NIXL_IN_PROG;
       --left)
    std::this_thread::yield();
}

bool all_are(Bytes bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte each) { return each == value; });
}

std::size_t entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Moves bytes that everything sent before must have come before.
void run_behind(Host& a, const Memory& local, const Memory& remote) {
  for (const auto operation : {NIXL_READ, NIXL_WRITE})
    REQUIRE(a.prepared(operation, "b", local.piece(remote.address())).run() == NIXL_SUCCESS);
}

}  // namespace

TEST_CASE("after a READ is released in flight and its memory deregistered, no byte lands there") {
  Rng rng(seed_of_test());
  Host a("a");
  Host b("b");
  Memory& fence = a.add(4096);
  Memory& remote = b.add(kBytes);
  Memory& remote_fence = b.add(4096);
  REQUIRE(introduce(a, b));
  fill_pattern(remote.bytes, 1);
  int in_flight = 0;
  for (int round = 0; round < scaled(60); ++round) {
    CAPTURE(round);
    Memory& local = a.add(kBytes);
    Request request = a.prepared(NIXL_READ, "b", local.piece(remote.address()));
    REQUIRE(request.post() >= NIXL_SUCCESS);
    check_for_a_while(rng, request);
    if (request.check() == NIXL_IN_PROG) ++in_flight;
    REQUIRE(request.release() == NIXL_SUCCESS);
    REQUIRE(a.deregister(local) == NIXL_SUCCESS);
    std::fill(local.bytes.begin(), local.bytes.end(), std::byte{0xee});
    run_behind(a, fence, remote_fence);
    REQUIRE(all_are(local.bytes, std::byte{0xee}));
    a.remove(local);
  }
  MESSAGE(str(in_flight, " of ", scaled(60), " were in flight"));
  WARN(in_flight > 0);  // where a transfer ends within its post, this shows little
}

TEST_CASE("after a WRITE is released in flight and its memory deregistered, what is put there is not sent") {
  Rng rng(seed_of_test());
  Host a("a");
  Host b("b");
  Memory& fence = a.add(4096);
  Memory& remote = b.add(kBytes);
  Memory& remote_fence = b.add(4096);
  REQUIRE(introduce(a, b));
  int in_flight = 0;
  for (int round = 0; round < scaled(60); ++round) {
    CAPTURE(round);
    Memory& local = a.add(kBytes);
    std::fill(local.bytes.begin(), local.bytes.end(), std::byte{0x11});
    Request request = a.prepared(NIXL_WRITE, "b", local.piece(remote.address()));
    REQUIRE(request.post("never before its data") >= NIXL_SUCCESS);
    check_for_a_while(rng, request);
    if (request.check() == NIXL_IN_PROG) ++in_flight;
    REQUIRE(request.release() == NIXL_SUCCESS);
    REQUIRE(a.deregister(local) == NIXL_SUCCESS);
    std::fill(local.bytes.begin(), local.bytes.end(), std::byte{0xee});
    run_behind(a, fence, remote_fence);
    REQUIRE(std::find(remote.bytes.begin(), remote.bytes.end(), std::byte{0xee}) == remote.bytes.end());
    a.remove(local);
  }
  MESSAGE(str(in_flight, " of ", scaled(60), " were in flight"));
  WARN(in_flight > 0);  // where a transfer ends within its post, this shows little
}

TEST_CASE("hundreds of handles are released in flight, and the engine goes on") {
  Host a("a");
  Host b("b");
  Memory& local = a.add(1 << 20);
  Memory& remote = b.add(1 << 20);
  // What was released may still move its bytes, while its memory is registered.
  Memory& other = a.add(1 << 20);
  Memory& remote_other = b.add(1 << 20);
  REQUIRE(introduce(a, b));
  for (int round = 0; round < 20; ++round) {
    std::vector<Request> requests;
    for (int i = 0; i < 50; ++i) {
      requests.push_back(a.prepared(i % 2 == 0 ? NIXL_WRITE : NIXL_READ, "b", local.piece(remote.address())));
      REQUIRE(requests.back().post(str(i)) >= NIXL_SUCCESS);
    }
  }
  fill_pattern(other.bytes, 4);
  CHECK(a.prepared(NIXL_WRITE, "b", other.piece(remote_other.address())).run() == NIXL_SUCCESS);
  CHECK(has_pattern(remote_other.bytes, 4));
}

TEST_CASE("an engine is destroyed right after its handles were released in flight") {
  Rng rng(seed_of_test());
  Host b("b");
  Memory& remote = b.add(kBytes);
  for (int round = 0; round < scaled(20); ++round) {
    CAPTURE(round);
    auto a = std::make_unique<Host>(str("a", round));
    Memory& local = a->add(kBytes);
    REQUIRE(a->load(b.metadata()) == NIXL_SUCCESS);
    {
      Request write = a->prepared(NIXL_WRITE, "b", local.piece(remote.address()));
      Request read = a->prepared(NIXL_READ, "b", local.piece(remote.address()));
      REQUIRE(write.post("bye") >= NIXL_SUCCESS);
      REQUIRE(read.post() >= NIXL_SUCCESS);
      check_for_a_while(rng, read);
    }
    a.reset();
  }
}

TEST_CASE("a handle that outlives its engine is deleted without harm") {
  Host b("b");
  Memory& remote = b.add(kBytes);
  auto a = std::make_unique<Host>("a");
  Memory& local = a->add(kBytes);
  REQUIRE(a->load(b.metadata()) == NIXL_SUCCESS);
  Request request = a->prepared(NIXL_READ, "b", local.piece(remote.address()));
  REQUIRE(request.post() >= NIXL_SUCCESS);
  const std::unique_ptr<nixlBackendReqH> handle(std::exchange(request.handle(), nullptr));
  a.reset();
}

TEST_CASE("when an engine is destroyed its peers' transfers end, and they go on with others") {
  Rng rng(seed_of_test());
  Host a("a");
  Host other("other");
  Memory& local = a.add(kBytes);
  Memory& remote = other.add(kBytes);
  REQUIRE(introduce(a, other));
  for (int round = 0; round < scaled(10); ++round) {
    CAPTURE(round);
    auto b = std::make_unique<Host>(str("b", round));
    Memory& gone = b->add(kBytes);
    fill_pattern(gone.bytes, round);
    REQUIRE(a.load(b->metadata()) == NIXL_SUCCESS);
    Request read = a.prepared(NIXL_READ, b->name(), local.piece(gone.address()));
    Request later = a.prepared(NIXL_WRITE, b->name(), local.piece(gone.address()));
    REQUIRE(read.post("read") >= NIXL_SUCCESS);
    check_for_a_while(rng, read);
    const std::string name = b->name();
    b.reset();
    const nixl_status_t status = read.wait();
    CHECK(status != NIXL_IN_PROG);
    if (status == NIXL_SUCCESS) CHECK(has_pattern(local.bytes, round));
    CHECK(later.run("write") < NIXL_SUCCESS);
    CHECK(a.engine().genNotif(name, "anybody?") <= NIXL_SUCCESS);
    read.release();
    later.release();
    a.unload(name);
    fill_pattern(local.bytes, 77 + round);
    REQUIRE(a.prepared(NIXL_WRITE, "other", local.piece(remote.address())).run() == NIXL_SUCCESS);
    REQUIRE(has_pattern(remote.bytes, 77 + round));
  }
}

TEST_CASE("what is posted to an agent that was unloaded meanwhile ends, and its handle is released") {
  Host a("a");
  Host b("b");
  Memory& local = a.add(kBytes);
  Memory& remote = b.add(kBytes);
  REQUIRE(introduce(a, b));
  Request posted = a.prepared(NIXL_WRITE, "b", local.piece(remote.address()));
  Request fresh = a.prepared(NIXL_WRITE, "b", local.piece(remote.address()));
  REQUIRE(posted.post() >= NIXL_SUCCESS);
  a.unload("b");
  CHECK(posted.wait() != NIXL_IN_PROG);
  CHECK(fresh.run() != NIXL_IN_PROG);
}

TEST_CASE("two engines are created and destroyed 100 times: threads and descriptors stay as many") {
  const auto round = [](int i) {
    Host a("a");
    Host b("b");
    Memory& local = a.add(64 << 10);
    Memory& remote = b.add(64 << 10);
    REQUIRE(introduce(a, b));
    fill_pattern(local.bytes, i);
    REQUIRE(a.prepared(NIXL_WRITE, "b", local.piece(remote.address())).run("x") == NIXL_SUCCESS);
    REQUIRE(has_pattern(remote.bytes, i));
  };
  // What is made once for the process is there after a few rounds.
  for (int i = 0; i < 5; ++i) round(i);
  const std::size_t threads = entries("/proc/self/task");
  const std::size_t descriptors = entries("/proc/self/fd");
  for (int i = 0; i < scaled(100); ++i) round(i);
  CHECK_MESSAGE(eventually([&] { return entries("/proc/self/task") <= threads; }), "threads: ", threads,
                " before, ", entries("/proc/self/task"), " after");
  CHECK_MESSAGE(eventually([&] { return entries("/proc/self/fd") <= descriptors; }),
                "descriptors: ", descriptors, " before, ", entries("/proc/self/fd"), " after");
}

}  // namespace slime::test::nixl::ends_test
