// A ring and its bells between two processes, which is what they are for.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <new>

#include "base/random.h"
#include "tests/support/settings.h"
#include "transport/shm/bell.h"
#include "transport/shm/ring.h"
#include "transport/shm/shared_memory.h"

namespace slime::transport::shm {
namespace {

using std::chrono::seconds;

constexpr std::uint32_t kBytes = 64 * 1024;
constexpr std::size_t kControlBytes = 4096;
static_assert(sizeof(RingControl) <= kControlBytes);

// What one process maps of the memory that both share: the control, then the ring.
RingMemory ring_in(const SharedMemory& memory) {
  return {reinterpret_cast<RingControl*>(memory.data()), memory.data() + kControlBytes, kBytes};
}

// One end as a port has it: a bell of its own, and the other end's.
struct End {
  Bell own;
  PeerBell other;

  // Until the other end has rung. False: it did not, within a bound that only a failure reaches.
  bool await_ring() {
    bool rung = false;
    const auto look = [&] { own.take([&](std::uint32_t) { rung = true; }); };
    for (look(); !rung; look()) {
      if (!own.sleep()) continue;
      pollfd event{own.event_fd(), POLLIN, 0};
      const auto bound = std::chrono::duration_cast<std::chrono::milliseconds>(test::patient(seconds(20)));
      if (::poll(&event, 1, static_cast<int>(bound.count())) <= 0) return false;
      own.drain();
      own.wake();
    }
    return true;
  }
};

Status introduce(End& end, const End& other, std::uint32_t number) {
  auto bell =
      PeerBell::map(UniqueFd(::dup(other.own.page_fd())), UniqueFd(::dup(other.own.event_fd())), number);
  if (!bell) return std::move(bell).error();
  end.other = std::move(*bell);
  return {};
}

// What the writer sends: the reader makes the same from the seed.
ByteVector stream(std::uint64_t seed, std::size_t bytes) {
  ByteVector out(bytes);
  Rng(seed).fill(out);
  return out;
}

// The other process, which has nothing of the test's framework: its exit status says how it went.
int write_all(End& end, RingWriter writer, ByteVector bytes, Rng sizes) {
  for (std::size_t written = 0; written < bytes.size();) {
    const std::size_t wanted = std::min<std::size_t>(bytes.size() - written, 1 + sizes.below(30'000));
    const iovec part{bytes.data() + written, wanted};
    const auto taken = writer.write(std::span(&part, 1));
    if (!taken) return 1;
    written += *taken;
    if (*taken > 0 && writer.reader_parked()) end.other.ring();
    if (*taken > 0) continue;
    const auto wait = writer.await_room();
    if (!wait) return 2;
    if (*wait && !end.await_ring()) return 3;
  }
  return 0;
}

ByteVector read_all(End& end, RingReader reader, std::size_t bytes, Rng sizes) {
  ByteVector out(bytes);
  for (std::size_t got = 0; got < bytes;) {
    const iovec part{out.data() + got, std::min<std::size_t>(bytes - got, 1 + sizes.below(30'000))};
    const auto now = reader.read(std::span(&part, 1));
    REQUIRE_MESSAGE(now.has_value(), now.status().to_string());
    got += *now;
    const bool parked = *now == 0 && reader.park();
    if (reader.writer_waits()) end.other.ring();
    if (!parked) continue;
    REQUIRE_MESSAGE(end.await_ring(), "nobody rang for a parked reader, at byte ", got);
    reader.unpark();
  }
  return out;
}

TEST_CASE("two processes: whoever parks or waits for room is rung, and the stream is whole") {
  const auto seed = static_cast<std::uint64_t>(test::setting("SLIME_TEST_SEED", 1));
  MESSAGE("SLIME_TEST_SEED=", seed);
  const std::size_t bytes = static_cast<std::size_t>(test::scaled(32)) << 20;
  UniqueFd fd;
  const auto memory = SharedMemory::create(kControlBytes + kBytes, fd);
  REQUIRE_MESSAGE(memory.has_value(), memory.status().to_string());
  new (memory->data()) RingControl();
  End reader;
  End writer;
  REQUIRE(reader.own.open().ok());
  REQUIRE(writer.own.open().ok());
  REQUIRE(introduce(reader, writer, 0).ok());
  REQUIRE(introduce(writer, reader, limits::kShmPeers - 1).ok());

  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(4);
    const auto mine = SharedMemory::map(fd.get(), kControlBytes + kBytes);  // elsewhere than the reader's
    ::_exit(mine ? write_all(writer, RingWriter(ring_in(*mine)), stream(seed, bytes), Rng(seed + 1)) : 5);
  }
  const ByteVector got = read_all(reader, RingReader(ring_in(*memory)), bytes, Rng(seed + 2));
  CHECK(got == stream(seed, bytes));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace slime::transport::shm
