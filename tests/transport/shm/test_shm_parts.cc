#include <doctest/doctest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "transport/shm/fd_watch.h"
#include "transport/shm/park_check.h"
#include "transport/shm/spare_memory.h"

// The parts of a wire in shared memory, without a peer.
namespace slime::transport::shm::parts_test {
namespace {

TEST_CASE("a watch calls its function with the events of its descriptor, until it is stopped") {
  const Result<std::shared_ptr<Loop>> loop = Loop::create();
  REQUIRE(loop);
  std::array<int, 2> fds{};
  REQUIRE(::pipe(fds.data()) == 0);
  const UniqueFd out(fds[0]), in(fds[1]);
  int calls = 0;
  FdWatch watch(**loop, [&](std::uint32_t events) {
    CHECK(events == EPOLLIN);
    ++calls;
  });
  CHECK_FALSE(watch.active());
  watch.stop();
  REQUIRE(::write(in.get(), "x", 1) == 1);
  REQUIRE(watch.start(out.get(), EPOLLIN).ok());
  CHECK(watch.active());
  (*loop)->poll(Nanos::zero());
  CHECK(calls == 1);
  watch.stop();
  CHECK_FALSE(watch.active());
  (*loop)->poll(Nanos::zero());
  CHECK(calls == 1);
  {
    FdWatch other(**loop, [&](std::uint32_t) { ++calls; });
    REQUIRE(other.start(out.get(), EPOLLIN).ok());
  }
  (*loop)->poll(Nanos::zero());
  CHECK(calls == 1);
  CHECK_FALSE(watch.start(-1, EPOLLIN).ok());
  CHECK_FALSE(watch.active());
}

TEST_CASE("the first write outside of a look checks at once, all others share one later check") {
  using Next = ParkCheck::Next;
  ParkCheck check;
  CHECK(check.after_write(false, 1) == Next::kNow);
  CHECK(check.after_write(false, 1) == Next::kLater);
  CHECK(check.after_write(false, 1) == Next::kPlanned);
  CHECK(check.after_write(true, 2) == Next::kPlanned);
  check.begin();
  CHECK(check.after_write(true, 2) == Next::kLater);
  check.begin();
  CHECK(check.after_write(false, 2) == Next::kNow);
  CHECK(check.after_write(true, 3) == Next::kLater);
}

TEST_CASE("pages are given back after a time without writes, and windows once none is open") {
  SpareMemory spare;
  int trims = 0;
  bool trimmed = false, windows_left = true;
  const auto age = [&] {
    const auto trim = [&] {
      ++trims;
      return trimmed;
    };
    return spare.age(trim, [&] { return windows_left; });
  };
  CHECK_FALSE(age());
  CHECK(spare.note_write());
  CHECK_FALSE(spare.note_write());
  CHECK(age());
  CHECK(trims == 0);
  CHECK(age());  // the ring cannot be trimmed now
  CHECK(trims == 1);
  trimmed = true;
  CHECK_FALSE(age());
  CHECK(spare.note_write());
  CHECK(spare.note_window());
  CHECK_FALSE(spare.note_window());
  CHECK(age());
  CHECK(age());
  CHECK(trims == 3);
  windows_left = false;
  CHECK_FALSE(age());
  CHECK(spare.note_window());
}

}  // namespace
}  // namespace slime::transport::shm::parts_test
