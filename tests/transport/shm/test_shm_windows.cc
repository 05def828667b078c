// Memory that a peer maps: what it may do with it, until when, and what a peer that lies, stops or
// dies changes.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>

#include "tests/transport/huge_pool.h"
#include "tests/transport/keys.h"
#include "tests/transport/shm/windows_rig.h"

namespace slime::transport::testing {
namespace {

void close_under_a_stopped_copy(std::size_t length, Pages pages) {
  Owner owner;
  DeviceRegion region = owner.region(length, Rights::kReadWrite, pages);
  User user(owner);
  const PeerMemory::Reach reach = user.reach(region);
  REQUIRE(reach.way == PeerMemory::Way::kDirect);
  const PeerWindow window = *reach.window;
  const pid_t peer = in_child(owner, [&] {
    if (!window.begin(Rights::kReadWrite)) return 2;
    std::memset(window.data, static_cast<int>(kPeers), length / 2);
    ::raise(SIGSTOP);
    std::memset(window.data, static_cast<int>(kPeers), window.length_bytes);
    return window.end(Rights::kReadWrite) ? 1 : 0;
  });
  REQUIRE(WIFSTOPPED(wait_for(peer)));
  const MutableBytes bytes = region.bytes();
  CHECK(all_are(bytes.first(length / 2), kPeers));
  CHECK(region.close(milliseconds(20)).code() == Code::kDeadlineExceeded);
  // What had landed stays, what had not never comes.
  CHECK(all_are(bytes.first(length / 2), kPeers));
  CHECK(all_are(bytes.subspan(length / 2), kOld));
  std::fill(bytes.begin(), bytes.end(), kNew);
  REQUIRE(::kill(peer, SIGCONT) == 0);
  const int state = wait_for(peer);
  REQUIRE(WIFEXITED(state));
  CHECK(WEXITSTATUS(state) == 0);  // and the peer knows that its copy did not count
  CHECK(all_are(bytes, kNew));
}

TEST_CASE("no byte of a peer that is stopped inside a copy lands after the region was closed") {
  close_under_a_stopped_copy(8 * kMiB + 5, Pages::kDefault);
}

TEST_CASE("the same in huge pages") {
  const HugePool pool;
  if (pool.has(4)) close_under_a_stopped_copy(pool.state.page_bytes + 5, Pages::kHuge);
}

TEST_CASE("a peer that is stopped inside a copy reads nothing that came after the region was closed") {
  Owner owner;
  DeviceRegion region = owner.region(2 * kMiB, Rights::kRemoteRead);
  User user(owner);
  const PeerMemory::Reach reach = user.reach(region);
  REQUIRE(reach.way == PeerMemory::Way::kDirect);
  const PeerWindow window = *reach.window;
  const pid_t peer = in_child(owner, [&] {
    if (!window.begin(Rights::kReadWrite)) return 2;
    ::raise(SIGSTOP);
    const bool clean = all_are(Bytes(window.data, window.length_bytes), kOld);
    return clean && !window.end(Rights::kReadWrite) ? 0 : 1;
  });
  REQUIRE(WIFSTOPPED(wait_for(peer)));
  CHECK(region.close(Nanos::zero()).code() == Code::kDeadlineExceeded);
  std::fill(region.bytes().begin(), region.bytes().end(), kNew);
  REQUIRE(::kill(peer, SIGCONT) == 0);
  const int state = wait_for(peer);
  REQUIRE(WIFEXITED(state));
  CHECK(WEXITSTATUS(state) == 0);
}

TEST_CASE("a peer that was killed inside a copy holds nothing up") {
  Owner owner;
  DeviceRegion region = owner.region(kMiB);
  pid_t peer = 0;
  {
    User user(owner);
    const PeerMemory::Reach reach = user.reach(region);
    REQUIRE(reach.way == PeerMemory::Way::kDirect);
    const PeerWindow window = *reach.window;
    peer = in_child(owner, [&] {
      (void)window.begin(Rights::kReadWrite);
      ::raise(SIGSTOP);
      return 0;
    });
  }
  REQUIRE(WIFSTOPPED(wait_for(peer)));
  REQUIRE(owner.page().in_use.load() != 0);
  REQUIRE(::kill(peer, SIGKILL) == 0);
  REQUIRE(WIFSIGNALED(wait_for(peer)));
  const TimePoint begin = steady_clock().now();
  CHECK(region.close(seconds(20)).ok());
  CHECK(steady_clock().now() - begin < seconds(10));
}

TEST_CASE("after a region was closed its window opens no more, and is unmapped by the next sweep") {
  Owner owner;
  DeviceRegion region = owner.region(kMiB);
  User user(owner);
  const PeerMemory::Reach reach = user.reach(region);
  REQUIRE(reach.way == PeerMemory::Way::kDirect);
  REQUIRE(reach.window->begin(Rights::kReadWrite));
  CHECK(reach.window->end(Rights::kRemoteRead));
  CHECK(region.close().ok());
  CHECK_FALSE(reach.window->begin(Rights::kReadWrite));
  CHECK(owner.page().in_use.load() == 0);
  CHECK(user.windows->mapped() == 1);
  user.windows->sweep();
  CHECK(user.windows->mapped() == 0);
  CHECK(user.windows->empty());
}

TEST_CASE("an owner whose side of the connection ended has taken everything back") {
  Owner owner;
  DeviceRegion region = owner.region(kMiB);
  User user(owner);
  const PeerMemory::Reach reach = user.reach(region);
  REQUIRE(reach.way == PeerMemory::Way::kDirect);
  owner.exports.reset();
  CHECK_FALSE(reach.window->begin(Rights::kReadWrite));
  CHECK(region.close(Nanos::zero()).ok());
}

// Mapped by a peer that is stopped inside of a copy.
struct StoppedInside {
  StoppedInside() : region(owner.region(kMiB)) {
    const User user(owner);
    const PeerMemory::Reach reach = user.reach(region);
    REQUIRE(reach.way == PeerMemory::Way::kDirect);
    const PeerWindow window = *reach.window;
    peer = in_child(owner, [window] {
      if (!window.begin(Rights::kReadWrite)) return 2;
      ::raise(SIGSTOP);
      const bool still = window.end(Rights::kReadWrite);
      return still || window.begin(Rights::kReadWrite) ? 1 : 0;
    });
    REQUIRE(WIFSTOPPED(wait_for(peer)));
  }
  Owner owner;
  DeviceRegion region;
  pid_t peer = 0;
};

TEST_CASE("what was taken back is busy until the peer that was stopped inside has left") {
  StoppedInside one;
  const std::shared_ptr<const Loan> inside = one.owner.exports->take_back();
  REQUIRE(inside != nullptr);
  one.owner.exports.reset();
  CHECK(inside->busy());
  REQUIRE(::kill(one.peer, SIGCONT) == 0);
  const int state = wait_for(one.peer);
  REQUIRE(WIFEXITED(state));
  CHECK(WEXITSTATUS(state) == 0);  // it saw that, and gets in no more
  CHECK_FALSE(inside->busy());
  CHECK(one.region.close(Nanos::zero()).ok());
}

TEST_CASE("what was taken back is not busy once the peer is gone, or the region has other pages") {
  StoppedInside killed;
  const std::shared_ptr<const Loan> dead = killed.owner.exports->take_back();
  REQUIRE(dead != nullptr);
  REQUIRE(::kill(killed.peer, SIGKILL) == 0);
  REQUIRE(WIFSIGNALED(wait_for(killed.peer)));
  CHECK_FALSE(dead->busy());

  StoppedInside stays;
  const std::shared_ptr<const Loan> parted = stays.owner.exports->take_back();
  REQUIRE(parted != nullptr);
  CHECK(stays.region.close(Nanos::zero()).code() == Code::kDeadlineExceeded);
  CHECK_FALSE(parted->busy());
  REQUIRE(::kill(stays.peer, SIGKILL) == 0);
  REQUIRE(WIFSIGNALED(wait_for(stays.peer)));
}

TEST_CASE("what nobody is inside of is taken back at once") {
  Owner owner;
  CHECK(owner.exports->take_back() == nullptr);
  DeviceRegion region = owner.region(kMiB);
  User user(owner);
  REQUIRE(user.reach(region).way == PeerMemory::Way::kDirect);
  CHECK(owner.exports->take_back() == nullptr);
}

TEST_CASE("the descriptor of a region that is only for reading cannot be mapped for writing, nor written") {
  Owner owner;
  DeviceRegion region = owner.region(kMiB, Rights::kRemoteRead);
  shm::WindowRequest request;
  request.region = region.describe().id.packed();
  request.key = key_of(region.describe());
  UniqueFd descriptor;
  const shm::WindowReply reply = owner.exports->answer(request, owner.device->regions, descriptor);
  REQUIRE(reply.code == 0);
  CHECK(static_cast<Rights>(reply.rights) == Rights::kRemoteRead);
  CHECK(::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0) == MAP_FAILED);
  CHECK(::write(descriptor.get(), "x", 1) < 0);
  CHECK(shm::SharedMemory::map(descriptor.get(), kMiB, shm::Access::kRead).has_value());
  User user(owner);
  const PeerMemory::Reach reach = user.reach(region);
  REQUIRE(reach.way == PeerMemory::Way::kDirect);
  CHECK_FALSE(reach.window->covers(remote_of(region.describe()), Rights::kRemoteWrite, 0, 1));
  CHECK(reach.window->covers(remote_of(region.describe()), Rights::kRemoteRead, 0, kMiB));
  CHECK_FALSE(reach.window->covers(remote_of(region.describe()), Rights::kRemoteRead, 1, kMiB));
}

TEST_CASE("a region is shown to nobody without its key, beyond its rights, or after it was closed") {
  Owner owner;
  DeviceRegion region = owner.region(kMiB);
  DeviceRegion own = owner.region(kMiB, Rights::kLocal);
  const auto asked = [&](const RegionDescriptor& descriptor, std::uint64_t key) {
    shm::WindowRequest request;
    request.region = descriptor.id.packed();
    request.key = key;
    UniqueFd descriptor_of_memory;
    const shm::WindowReply reply =
        owner.exports->answer(request, owner.device->regions, descriptor_of_memory);
    CHECK(descriptor_of_memory.valid() == (reply.code == 0));
    return static_cast<Code>(reply.code);
  };
  const RegionDescriptor descriptor = region.describe();
  CHECK(asked(descriptor, key_of(descriptor)) == Code::kOk);
  CHECK(asked(descriptor, key_of(descriptor) ^ 2) == Code::kPermissionDenied);
  CHECK(asked(own.describe(), key_of(own.describe())) == Code::kPermissionDenied);
  CHECK(region.close().ok());
  CHECK(asked(descriptor, key_of(descriptor)) == Code::kNotFound);
}

TEST_CASE("one peer is shown so many regions and no more, and closing one makes room") {
  Owner owner;
  User user(owner);
  std::vector<DeviceRegion> regions;
  for (std::size_t i = 0; i < limits::kExports; ++i) {
    regions.push_back(owner.region(4096));
    REQUIRE(user.reach(regions.back()).way == PeerMemory::Way::kDirect);
  }
  DeviceRegion more = owner.region(4096);
  CHECK(user.windows->reach(remote_of(more.describe())).way == PeerMemory::Way::kWire);
  CHECK(regions[17].close().ok());
  CHECK(user.reach(more).way == PeerMemory::Way::kDirect);
  CHECK(user.windows->mapped() == limits::kWindows);
}

// What the owner says, with another descriptor or other numbers.
struct Lie {
  Lie() : region(owner.region(kMiB)), user(owner) {
    REQUIRE(user.windows->reach(remote_of(region.describe())).way == PeerMemory::Way::kAsked);
    shm::WindowRequest request;
    request.region = region.describe().id.packed();
    request.key = key_of(region.describe());
    reply = owner.exports->answer(request, owner.device->regions, descriptor);
    REQUIRE(reply.code == 0);
  }
  Code told(UniqueFd fd) {
    std::vector<UniqueFd> descriptors;
    descriptors.push_back(std::move(fd));
    return user.windows->on_reply(reply, std::move(descriptors)).code();
  }
  [[nodiscard]] PeerMemory::Way way() const { return user.windows->reach(remote_of(region.describe())).way; }
  Owner owner;
  DeviceRegion region;
  User user;
  UniqueFd descriptor;
  shm::WindowReply reply;
};

UniqueFd memfd(std::size_t bytes, int seals) {
  UniqueFd out(::memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(out.get(), static_cast<off_t>(bytes)) == 0);
  if (seals != 0) REQUIRE(::fcntl(out.get(), F_ADD_SEALS, seals) == 0);
  return out;
}

TEST_CASE("memory that could shrink, or has another size than it is said to have, is never mapped") {
  {
    Lie lie;
    CHECK(lie.told(memfd(kMiB, 0)) == Code::kCorrupt);
    CHECK(lie.way() == PeerMemory::Way::kWire);
  }
  {
    Lie lie;
    CHECK(lie.told(memfd(kMiB - 4096, F_SEAL_SHRINK)) == Code::kCorrupt);
    CHECK(lie.way() == PeerMemory::Way::kWire);
  }
  {
    Lie lie;
    CHECK(lie.told(memfd(2 * kMiB, F_SEAL_SHRINK)) == Code::kCorrupt);
  }
  Lie lie;
  CHECK(lie.told(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC))) == Code::kCorrupt);
  CHECK(lie.user.windows->mapped() == 0);
}

TEST_CASE("memory that cannot be mapped as promised is reached through the rings") {
  {
    Lie lie;  // for reading only, said to be for writing
    const UniqueFd own = memfd(kMiB, F_SEAL_SHRINK);
    const std::string path = "/proc/self/fd/" + std::to_string(own.get());
    CHECK(lie.told(UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC))) == Code::kOk);
    CHECK(lie.way() == PeerMemory::Way::kWire);
  }
  Lie lie;  // more than one peer may have us map
  lie.reply.length_bytes = limits::kWindowBytes + 1;
  CHECK(lie.told(memfd(kMiB, F_SEAL_SHRINK)) == Code::kOk);
  CHECK(lie.way() == PeerMemory::Way::kWire);
}

TEST_CASE("an answer that nobody asked for is corrupt, also the second one") {
  Lie lie;
  lie.reply.key ^= 2;
  CHECK(lie.told(UniqueFd()) == Code::kCorrupt);
  lie.reply.key ^= 2;
  CHECK(lie.told(std::move(lie.descriptor)) == Code::kOk);
  CHECK(lie.way() == PeerMemory::Way::kDirect);
  CHECK(lie.told(memfd(kMiB, F_SEAL_SHRINK)) == Code::kCorrupt);
}

TEST_CASE("an answer whose descriptor was lost leaves nobody waiting: the rings do") {
  Lie lie;
  shm::Packet packet;
  const Bytes bytes = std::as_bytes(std::span(&lie.reply, 1));
  packet.bytes.assign(bytes.begin(), bytes.end());
  packet.lost_descriptors = true;
  const auto reply = shm::decode_window_reply(packet);
  REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
  CHECK(lie.user.windows->on_reply(*reply, {}).ok());
  CHECK(lie.way() == PeerMemory::Way::kWire);
}

TEST_CASE("what was refused for want of descriptors is asked for again after the next sweep") {
  const Owner owner;
  User user(owner);
  DeviceRegion region = owner.region(kMiB);
  REQUIRE(user.windows->reach(remote_of(region.describe())).way == PeerMemory::Way::kAsked);
  auto packet = shm::receive_packet(owner.attachment->socket.get());
  REQUIRE(packet.has_value());
  const shm::WindowReply refusal =
      owner.exports->refuse(*shm::decode_window_request(*packet), Code::kResourceExhausted);
  REQUIRE(user.windows->on_reply(refusal, {}).ok());
  CHECK(user.reach(region).way == PeerMemory::Way::kWire);
  CHECK_FALSE(user.windows->empty());  // so that the sweep goes on
  user.windows->sweep();
  CHECK(user.reach(region).way == PeerMemory::Way::kDirect);
}

TEST_CASE("when no answer can come any more the rings do, and what is mapped stays") {
  Owner owner;
  DeviceRegion region = owner.region(kMiB);
  DeviceRegion other = owner.region(kMiB);
  User user(owner);
  REQUIRE(user.reach(region).way == PeerMemory::Way::kDirect);
  REQUIRE(user.windows->reach(remote_of(other.describe())).way == PeerMemory::Way::kAsked);
  user.windows->lose();
  CHECK(user.windows->reach(remote_of(other.describe())).way == PeerMemory::Way::kWire);
  CHECK(user.windows->reach(remote_of(region.describe())).way == PeerMemory::Way::kDirect);
}

TEST_CASE("memory that is not Slime's is not asked for where its owner cannot be read") {
  Owner owner;
  ByteVector memory(kMiB);
  DeviceRegion region = owner.foreign(memory);
  User user(owner, false);
  CHECK(user.windows->reach(remote_of(region.describe())).way == PeerMemory::Way::kWire);
  CHECK(user.windows->empty());
}

TEST_CASE("memory that is not Slime's is read by its address, until its owner closes the region") {
  Owner owner;
  ByteVector memory(kMiB, kOld);
  DeviceRegion region = owner.foreign(memory);
  User user(owner);
  const PeerMemory::Reach reach = user.reach(region);
  REQUIRE(reach.way == PeerMemory::Way::kDirect);
  CHECK_FALSE(reach.window->mapped());
  CHECK(user.windows->mapped() == 0);
  ByteVector got(100);
  PeerBlocks list;
  list.add(got.data(), reach.window->address + 5, got.size());
  REQUIRE(reach.window->begin(Rights::kRemoteRead));
  CHECK(user.windows->fetch(list) == PeerMemory::Outcome::kDone);
  CHECK(reach.window->end(Rights::kRemoteRead));
  CHECK(all_are(got, kOld));
  REQUIRE(reach.window->begin(Rights::kRemoteRead));
  // close() waits for no reader, running or stopped; the reader sees that it was too late.
  const TimePoint begin = steady_clock().now();
  CHECK(region.close(seconds(20)).ok());
  CHECK(steady_clock().now() - begin < seconds(10));
  CHECK_FALSE(reach.window->end(Rights::kRemoteRead));
  CHECK_FALSE(reach.window->begin(Rights::kRemoteRead));
  user.windows->sweep();
  CHECK(user.windows->empty());
}

TEST_CASE("memory that the kernel reads for nobody is shown to nobody") {
  Owner owner;
  void* const nothing = ::mmap(nullptr, kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(nothing != MAP_FAILED);
  DeviceRegion region = owner.foreign({static_cast<std::byte*>(nothing), kMiB});
  User user(owner);
  CHECK(user.reach(region).way == PeerMemory::Way::kWire);
  ::munmap(nothing, kMiB);
}

TEST_CASE("an answer about memory of another kind than was asked for is corrupt") {
  Owner owner;
  ByteVector memory(kMiB);
  DeviceRegion foreign = owner.foreign(memory);
  DeviceRegion allocated = owner.region(kMiB);
  for (const DeviceRegion* region : {&foreign, &allocated}) {
    User user(owner);
    const RegionDescriptor descriptor = region->describe();
    REQUIRE(user.windows->reach(remote_of(descriptor)).way == PeerMemory::Way::kAsked);
    shm::WindowReply reply;
    reply.region = descriptor.id.packed();
    reply.key = key_of(descriptor);
    reply.rights = 3;
    reply.ticket = 1;
    reply.length_bytes = kMiB;
    reply.address = region == &foreign ? 0 : 0x10000;
    CHECK(user.windows->on_reply(reply, {}).code() == Code::kCorrupt);
    // What it had asked for.
    REQUIRE(shm::receive_packet(owner.attachment->socket.get()).has_value());
  }
}

TEST_CASE("a large window is unmapped in pieces, one in each turn of the loop") {
  Owner owner;
  DeviceRegion region = owner.region(40 * kMiB + 5);
  User user(owner);
  REQUIRE(user.reach(region).way == PeerMemory::Way::kDirect);
  user.windows.reset();
  std::vector<std::size_t> left{user.unmapper->left_bytes()};
  while (left.back() > 0 && left.size() < 10) {
    user.loop->poll(Nanos::zero());
    left.push_back(user.unmapper->left_bytes());
  }
  CHECK(left == std::vector<std::size_t>{40 * kMiB + 5, 16 * kMiB, 0});
}

TEST_CASE("many small windows are no more in one turn than a large one is") {
  Owner owner;
  User user(owner);
  std::vector<DeviceRegion> regions;
  for (int i = 0; i < 20; ++i) {
    regions.push_back(owner.region(4 * kMiB));
    REQUIRE(user.reach(regions.back()).way == PeerMemory::Way::kDirect);
  }
  user.windows.reset();
  std::vector<std::size_t> left{user.unmapper->left_bytes()};
  while (left.back() > 0 && left.size() < 10) {
    user.loop->poll(Nanos::zero());
    left.push_back(user.unmapper->left_bytes());
  }
  CHECK(left == std::vector<std::size_t>{80 * kMiB, 64 * kMiB, 48 * kMiB, 32 * kMiB, 16 * kMiB, 0});
}

}  // namespace
}  // namespace slime::transport::testing
