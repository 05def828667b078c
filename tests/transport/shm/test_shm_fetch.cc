// Memory of another process, read by its address: what is there, what is not, and what a process
// that ends, or withdraws, changes.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "transport/shm/packet.h"
#include "transport/shm/parameters.h"
#include "transport/shm/peer_process.h"

namespace slime::transport::testing {
namespace {

using Outcome = PeerMemory::Outcome;

constexpr std::size_t kPage = 4096;
constexpr std::byte kFill{0x5a};

struct Mapped {
  explicit Mapped(std::size_t size, int protection = PROT_READ | PROT_WRITE) : bytes(size) {
    data = static_cast<std::byte*>(::mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(data != MAP_FAILED);
  }
  ~Mapped() { ::munmap(data, bytes); }
  std::byte* data;
  std::size_t bytes;
};

// A process that has 16 pages of kFill, and then does nothing; it connected to us over a socket
// pair's like.
struct Other {
  Other() {
    std::fill_n(memory.data, memory.bytes, kFill);
    const pid_t parent = ::getpid();
    int fds[2];
    // A pair made here has our own process id on both ends; the child makes its own, and passes
    // nothing: it connects to a socket that we listen at.
    const std::string name = shm::local_socket_name(InstanceId::random());
    auto listening = shm::listen_local(name);
    REQUIRE(listening.has_value());
    REQUIRE(::pipe(fds) == 0);
    UniqueFd reading(fds[0]);
    UniqueFd writing(fds[1]);
    pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      const auto connected = shm::connect_local(name);
      // What we check for must not be in our memory as well.
      std::fill_n(memory.data, kPage, std::byte{0x77});
      (void)!::write(writing.get(), connected ? "1" : "0", 1);
      for (;;) ::pause();
    }
    char ready = 0;
    REQUIRE(::read(reading.get(), &ready, 1) == 1);
    REQUIRE(ready == '1');
    socket = UniqueFd(::accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    REQUIRE(socket.valid());
  }
  ~Other() { end(); }
  void end() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }

  Mapped memory{16 * kPage};
  const InstanceId cookie = InstanceId::random();
  const InstanceId our_cookie = InstanceId::random();
  shm::PeerProcess word{cookie, our_cookie, true};  // the child has a copy, at the same address
  pid_t pid = 0;
  UniqueFd socket;
};

std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

Outcome fetch(shm::PeerProcess& process, std::byte* here, std::uint64_t there, std::size_t bytes) {
  PeerBlocks list;
  list.add(here, there, bytes);
  return process.fetch(list);
}

TEST_CASE("blocks of another process are read, many with one call, and only those") {
  Other other;
  shm::PeerProcess process(other.our_cookie, other.cookie, true);
  process.meet(other.socket.get(), other.word.word());
  REQUIRE(process.met());
  ByteVector got(4 * kPage);
  PeerBlocks list;
  for (std::size_t i = 0; i < limits::kFetchBlocks; ++i) {
    REQUIRE_FALSE(list.full());
    list.add(got.data() + 20 * i, address_of(other.memory.data + 40 * i), 10);
  }
  CHECK(list.full());
  CHECK(list.bytes() == 10 * limits::kFetchBlocks);
  CHECK(process.fetch(list) == Outcome::kDone);
  for (std::size_t i = 0; i < limits::kFetchBlocks; ++i) {
    const std::byte expected = 40 * i + 10 <= kPage ? std::byte{0x77} : kFill;
    if (40 * i < kPage && 40 * i + 10 > kPage) continue;
    CHECK(got[20 * i] == expected);
    CHECK(got[20 * i + 9] == expected);
    CHECK(got[20 * i + 10] == std::byte{0});
  }
}

TEST_CASE("blocks that follow each other on both sides are one") {
  PeerBlocks list;
  ByteVector here(100);
  list.add(here.data(), 1000, 10);
  list.add(here.data() + 10, 1010, 20);
  CHECK(list.count() == 1);
  list.add(here.data() + 30, 1031, 5);  // there is a gap there
  list.add(here.data() + 36, 1036, 5);  // and one here
  CHECK(list.count() == 3);
  CHECK(list.bytes() == 40);
}

TEST_CASE("memory that is not there, or only in part, is a fault, and what is there can be read afterwards") {
  Other other;
  shm::PeerProcess process(other.our_cookie, other.cookie, true);
  process.meet(other.socket.get(), other.word.word());
  REQUIRE(process.met());
  ByteVector got(4 * kPage);
  CHECK(fetch(process, got.data(), 0, 1) == Outcome::kFault);
  CHECK(fetch(process, got.data(), ~std::uint64_t{0} - 100, 200) == Outcome::kFault);
  const std::uint64_t end = address_of(other.memory.data + other.memory.bytes);
  Mapped nothing(2 * kPage, PROT_NONE);
  CHECK(fetch(process, got.data(), address_of(nothing.data), kPage) == Outcome::kFault);
  PeerBlocks half;
  half.add(got.data(), end - 2 * kPage, kPage);
  half.add(got.data() + kPage, address_of(nothing.data), kPage);
  CHECK(process.fetch(half) == Outcome::kFault);
  // Of ours.
  CHECK(fetch(process, nothing.data, end - kPage, kPage) == Outcome::kFault);
  CHECK(process.fetches());
  CHECK(fetch(process, got.data(), end - kPage, kPage) == Outcome::kDone);
  CHECK(got[kPage - 1] == kFill);
}

TEST_CASE("a process that is stopped is read like any other, one that was killed is gone") {
  Other other;
  shm::PeerProcess process(other.our_cookie, other.cookie, true);
  process.meet(other.socket.get(), other.word.word());
  ByteVector got(kPage);
  REQUIRE(::kill(other.pid, SIGSTOP) == 0);
  int state = 0;
  REQUIRE(::waitpid(other.pid, &state, WUNTRACED) == other.pid);
  CHECK(fetch(process, got.data(), address_of(other.memory.data + kPage), kPage) == Outcome::kDone);
  other.end();
  CHECK(fetch(process, got.data(), address_of(other.memory.data + kPage), kPage) == Outcome::kGone);
  CHECK_FALSE(process.fetches());
  CHECK(process.met());
}

TEST_CASE("a process that does not have the word at its address is not the one that we are connected to") {
  Other other;
  const InstanceId else_cookie = InstanceId::random();
  shm::PeerProcess process(other.our_cookie, else_cookie, true);
  process.meet(other.socket.get(), other.word.word());
  CHECK_FALSE(process.met());
  shm::PeerProcess elsewhere(other.our_cookie, other.cookie, true);
  elsewhere.meet(other.socket.get(), address_of(other.memory.data));
  CHECK_FALSE(elsewhere.met());
  shm::PeerProcess silent(other.our_cookie, other.cookie, true);
  silent.meet(other.socket.get(), 0);
  CHECK_FALSE(silent.met());
}

TEST_CASE("nothing counts that is read after the other side has withdrawn its word") {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
  const UniqueFd ours(fds[0]);
  const UniqueFd theirs(fds[1]);
  const InstanceId our_cookie = InstanceId::random();
  const InstanceId their_cookie = InstanceId::random();
  shm::PeerProcess reader(our_cookie, their_cookie, true);
  shm::PeerProcess source(their_cookie, our_cookie, true);
  reader.meet(ours.get(), source.word());
  REQUIRE(reader.met());
  const ByteVector memory(100, kFill);
  ByteVector got(100);
  CHECK(fetch(reader, got.data(), address_of(memory.data()), 100) == Outcome::kDone);
  source.withdraw();
  CHECK(fetch(reader, got.data(), address_of(memory.data()), 100) == Outcome::kGone);
  CHECK(fetch(reader, got.data(), address_of(memory.data()), 100) == Outcome::kDenied);
}

TEST_CASE("who is not allowed to read does not, and is read by nobody") {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
  const UniqueFd ours(fds[0]);
  const UniqueFd theirs(fds[1]);
  const InstanceId cookie = InstanceId::random();
  shm::PeerProcess stranger(cookie, cookie, false);
  shm::PeerProcess other(cookie, cookie, true);
  CHECK(stranger.word() == 0);
  stranger.meet(ours.get(), other.word());
  CHECK_FALSE(stranger.met());
  other.meet(ours.get(), stranger.word());
  CHECK_FALSE(other.met());
}

}  // namespace
}  // namespace slime::transport::testing
