// Memory that a peer writes by its address: what closes it to the peer, and whom an owner waits for
// that takes it back.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/transport/keys.h"
#include "tests/transport/shm/windows_rig.h"
#include "transport/shm/gate.h"

namespace slime::transport::testing {
namespace {

using Outcome = PeerMemory::Outcome;

// Memory of the user's, and the window that a peer has onto it.
struct Shown {
  explicit Shown(Rights rights = Rights::kReadWrite) : region(owner.foreign(memory, rights)) {
    const PeerMemory::Reach reach = user.reach(region);
    REQUIRE(reach.way == PeerMemory::Way::kDirect);
    window = *reach.window;
  }
  // All bytes, as the peer would.
  Outcome store() const {
    ByteVector bytes(memory.size(), kPeers);
    PeerBlocks list;
    list.add(bytes.data(), window.address, bytes.size() / 2);
    list.add(bytes.data(), window.address + bytes.size() / 2, bytes.size() / 2);
    return user.windows->store(list, window);
  }

  Owner owner;
  ByteVector memory{ByteVector(kMiB, kOld)};
  DeviceRegion region;
  User user{owner};
  PeerWindow window;
};

// A process that has the window, and does what it is told by `fn`; it waits for go() where that
// calls wait().
class Peer {
 public:
  template <class F>
  Peer(Shown& shown, F fn) {
    int fds[2];
    REQUIRE(::pipe(fds) == 0);
    reading_ = UniqueFd(fds[0]);
    writing_ = UniqueFd(fds[1]);
    pid_ = in_child(shown.owner, [&] {
      writing_.reset();
      return fn(*this);
    });
    shown.owner.attachment->peer = pid_;
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void wait() const {
    char nothing = 0;
    (void)!::read(reading_.get(), &nothing, 1);
  }
  void go() { writing_.reset(); }
  void stop() const { ::raise(SIGSTOP); }
  [[nodiscard]] bool stopped() const { return WIFSTOPPED(wait_for(pid_)); }
  void resume() const { REQUIRE(::kill(pid_, SIGCONT) == 0); }
  void kill() {
    REQUIRE(::kill(pid_, SIGKILL) == 0);
    wait_for(std::exchange(pid_, 0));
  }
  // Waits for the process to exit, and returns what `fn` returned.
  int result() {
    const int state = wait_for(std::exchange(pid_, 0));
    REQUIRE(WIFEXITED(state));
    return WEXITSTATUS(state);
  }

 private:
  UniqueFd reading_;
  UniqueFd writing_;
  pid_t pid_ = 0;
};

TEST_CASE("memory that is not Slime's is written by its address, until its owner closes the region") {
  Shown shown;
  REQUIRE(shown.window.gate != 0);
  REQUIRE(shown.window.begin(Rights::kRemoteWrite));
  CHECK(shown.store() == Outcome::kDone);
  CHECK(shown.window.end(Rights::kRemoteWrite));
  CHECK(all_are(shown.memory, kPeers));
  CHECK(shown.region.close(Nanos::zero()).ok());
  std::fill(shown.memory.begin(), shown.memory.end(), kNew);
  CHECK_FALSE(shown.window.begin(Rights::kRemoteWrite));
  CHECK(shown.store() == Outcome::kGone);
  CHECK(all_are(shown.memory, kNew));
}

TEST_CASE("what may only be read has no gate, and writes that do not fit are not covered") {
  const Shown shown(Rights::kRemoteRead);
  CHECK(shown.window.gate == 0);
  const RemoteRegion region = remote_of(shown.region.describe());
  CHECK(shown.window.covers(region, Rights::kRemoteRead, 0, kMiB));
  CHECK_FALSE(shown.window.covers(region, Rights::kRemoteWrite, 0, 1));
  const Shown writable;
  CHECK(writable.window.covers(remote_of(writable.region.describe()), Rights::kRemoteWrite, 0, kMiB));
  CHECK_FALSE(writable.window.covers(remote_of(writable.region.describe()), Rights::kRemoteWrite, 1, kMiB));
}

TEST_CASE("the peer of another connection, or of none any more, passes no gate") {
  Shown shown;
  shown.owner.exports.reset();
  std::fill(shown.memory.begin(), shown.memory.end(), kNew);
  CHECK(shown.store() == Outcome::kGone);
  CHECK(all_are(shown.memory, kNew));
}

TEST_CASE(
    "a writer that is stopped before it has written holds nobody up, and writes nothing when it goes on") {
  Shown shown;
  Peer peer(shown, [&](const Peer& self) {
    if (!shown.window.begin(Rights::kRemoteWrite)) return 2;
    self.stop();
    const bool wrote = shown.store() != Outcome::kGone;
    return wrote || shown.window.end(Rights::kRemoteWrite) ? 1 : 0;
  });
  REQUIRE(peer.stopped());
  CHECK(shown.region.close(Nanos::zero()).ok());
  std::fill(shown.memory.begin(), shown.memory.end(), kNew);
  peer.resume();
  CHECK(peer.result() == 0);
  CHECK(all_are(shown.memory, kNew));
}

TEST_CASE("a writer that has written, and has not run since, holds nobody up") {
  Shown shown;
  Peer peer(shown, [&](const Peer& self) {
    if (!shown.window.begin(Rights::kRemoteWrite) || shown.store() != Outcome::kDone) return 2;
    self.wait();
    return shown.window.end(Rights::kRemoteWrite) ? 1 : 0;
  });
  REQUIRE(test::eventually([&] { return shown.owner.page().writing.load() != 0; }));
  // While it writes it is waited for.
  CHECK(shown.region.close(test::patient(seconds(10))).ok());
  CHECK(all_are(shown.memory, kPeers));
  peer.go();
  CHECK(peer.result() == 0);
}

TEST_CASE("a writer that may be inside of the kernel is waited for, beyond the bound, until it leaves") {
  Shown shown;
  Peer peer(shown, [&](const Peer& self) {
    if (!shown.window.begin(Rights::kRemoteWrite)) return 2;
    self.wait();
    return shown.window.end(Rights::kRemoteWrite) ? 1 : 0;
  });
  shm::ExportPage& page = shown.owner.page();
  REQUIRE(test::eventually([&] { return page.in_use.load() != 0; }));
  page.writing = (std::uint64_t{1} << 32) | 1;  // of a thread that is not the peer's, so its state is unknown
  std::atomic<bool> closed{false};
  std::thread closer([&] {
    CHECK(shown.region.close(Nanos::zero()).ok());
    closed = true;
  });
  REQUIRE(test::eventually([&] { return page.shown[0].load() == 0; }));
  CHECK_FALSE(closed);
  peer.go();
  CHECK(peer.result() == 0);
  closer.join();
}

TEST_CASE("a writer that is killed inside holds nobody up") {
  Shown shown;
  std::optional<Peer> peer;
  peer.emplace(shown, [&](const Peer& self) {
    (void)shown.window.begin(Rights::kRemoteWrite);
    self.wait();
    return 0;
  });
  REQUIRE(test::eventually([&] { return shown.owner.page().in_use.load() != 0; }));
  shown.owner.page().writing = (std::uint64_t{1} << 32) | 1;
  peer->kill();
  CHECK(shown.region.close(Nanos::zero()).ok());
}

TEST_CASE("gates are pages of their own, each somewhere else, and no more than the process has room for") {
  std::vector<shm::Gate> gates;
  gates.reserve(limits::kGates);
  for (std::size_t i = 0; i < limits::kGates; ++i) {
    gates.push_back(shm::Gate::open());
    REQUIRE(gates.back());
    REQUIRE(gates.back().over() == 0);
  }
  CHECK_FALSE(shm::Gate::open());
  gates.pop_back();
  CHECK(shm::Gate::open());
}

TEST_CASE("whether a thread is stopped is told of those that are there") {
  CHECK_FALSE(shm::is_stopped(::getpid(), ::getpid()));
  CHECK_FALSE(shm::is_stopped(::getpid(), 0));
  CHECK_FALSE(shm::is_stopped(0, 0));
}

}  // namespace
}  // namespace slime::transport::testing
