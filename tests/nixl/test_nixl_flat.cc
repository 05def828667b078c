// Shows that memory, descriptors and threads stay the same over thousands of posts and
// registrations, and with a peer that starts again and again.
#include <doctest/doctest.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/str.h"
#include "tests/nixl/peer_process.h"
#include "tests/nixl/pieces.h"
#include "tests/support/eventually.h"
#include "tests/support/sanitizers.h"

namespace slime::test::nixl::flat_test {
namespace {

constexpr std::size_t kBytes = 64 << 10;

// Counts what this process uses.
struct Use {
  std::uint64_t resident_bytes = 0;
  std::size_t descriptors = 0;
  std::size_t threads = 0;

  static Use now() {
    static_cast<void>(::malloc_trim(0));  // what is free does not count
    Use out;
    std::ifstream statm("/proc/self/statm");
    std::uint64_t all = 0;
    statm >> all >> out.resident_bytes;
    out.resident_bytes *= static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    out.descriptors = entries("/proc/self/fd");
    out.threads = entries("/proc/self/task");
    return out;
  }
  [[nodiscard]] std::string text() const {
    return str(resident_bytes >> 10, " KiB, ", descriptors, " descriptors, ", threads, " threads");
  }

 private:
  static std::size_t entries(const char* folder) {
    const std::filesystem::directory_iterator all(folder);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
};

// The use is soon that of the earlier, but for `slack_bytes`: what the last round closed may take a
// moment to go. Sanitizers keep what is freed, so with them only descriptors and threads count.
void check_flat(const std::string& what, const Use& early, std::uint64_t slack_bytes) {
  Use late;
  eventually([&] {
    late = Use::now();
    return late.descriptors <= early.descriptors && late.threads <= early.threads;
  });
  MESSAGE(str(what, ": ", early.text(), "; then ", late.text()));
  if (!kSanitized) CHECK(late.resident_bytes <= early.resident_bytes + slack_bytes);
  CHECK(late.descriptors <= early.descriptors);
  CHECK(late.threads <= early.threads);
}

// Without transparent huge pages: the kernel makes one of pages that are there already, and then
// the process has up to 2 MiB more although it asked for nothing.
[[maybe_unused]] const int kSmallPages = ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);

}  // namespace

TEST_CASE("a survivor goes on with a peer that is started again under its name 100 times, with flat memory") {
  const int rounds = std::max(10, scaled(100));
  Host host("survivor");
  Memory& memory = host.add(kBytes);
  Use early;
  for (int round = 1; round <= rounds; ++round) {
    CAPTURE(round);
    PeerProcess peer("phoenix", kBytes);
    REQUIRE(host.load(peer.metadata()) == NIXL_SUCCESS);
    const Piece piece = memory.piece(peer.address());
    {
      fill_pattern(memory.bytes, round);
      Request write = host.prepared(NIXL_WRITE, "phoenix", piece);
      REQUIRE(write.run(str("round ", round)) == NIXL_SUCCESS);
      REQUIRE(peer.ask("take") == str("GOT survivor round ", round));
      REQUIRE(peer.ask(str("matches ", round)) == "YES");
      REQUIRE(peer.ask(str("fill ", 1000 + round)) == "OK");
      REQUIRE(host.prepared(NIXL_READ, "phoenix", piece).run() == NIXL_SUCCESS);
      REQUIRE(has_pattern(memory.bytes, 1000 + round));
      peer.kill();
      REQUIRE(write.run() < NIXL_SUCCESS);
    }
    host.unload("phoenix");
    if (round == rounds / 5) early = Use::now();
  }
  // The agent remembers the addresses of 4096 peers (agent/limits.h), in 2 KiB each.
  const auto remembered = static_cast<std::uint64_t>(rounds - rounds / 5) * 4096;
  check_flat(str("after ", rounds / 5, " restarts, and after ", rounds), early, remembered + (256 << 10));
}

TEST_CASE("a handle that is posted 10,000 times takes no memory for each post") {
  Host a("a");
  Host b("b");
  Memory& local = a.add(4096);
  Memory& remote = b.add(4096);
  REQUIRE(introduce(a, b));
  Request request = a.prepared(NIXL_WRITE, "b", local.piece(remote.address()));
  Use early;
  const int posts = std::max(100, scaled(10'000));
  for (int i = 1; i <= posts; ++i) {
    REQUIRE(request.run("posted") == NIXL_SUCCESS);
    b.take_notifications();
    if (i == posts / 5) early = Use::now();
  }
  check_flat(str("after ", posts / 5, " posts, and after ", posts), early, 512 << 10);
}

TEST_CASE("memory that is registered, used and deregistered 10,000 times takes no more of it") {
  Host a("a");
  Host b("b");
  Memory& local = a.add(4096);
  Use early;
  const int times = std::max(100, scaled(10'000));
  for (int i = 1; i <= times; ++i) {
    Memory& remote = b.add(4096);
    if (i % 10 == 0) {
      REQUIRE(a.load(b.metadata()) == NIXL_SUCCESS);
      REQUIRE(a.prepared(NIXL_WRITE, "b", local.piece(remote.address())).run() == NIXL_SUCCESS);
      a.unload("b");
    }
    b.remove(remote);
    if (i == times / 5) early = Use::now();
  }
  check_flat(str("after ", times / 5, " registrations, and after ", times), early, 512 << 10);
}

}  // namespace slime::test::nixl::flat_test
