#pragma once

// The two sides of memory that one process shows to another, without the wires.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "tests/support/bytes.h"
#include "tests/transport/keys.h"
#include "transport/owned_memory.h"
#include "transport/shm/exports.h"
#include "transport/shm/windows.h"
#include "transport/soft/device.h"

namespace slime::transport::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::all_are;

constexpr std::size_t kMiB = 1 << 20;
constexpr std::byte kOld{0x22};
constexpr std::byte kPeers{0xee};
constexpr std::byte kNew{0x11};

// A device with regions, and what one peer has been told about them.
struct Owner {
  Owner() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    peers_end = UniqueFd(fds[1]);
    attachment->socket = UniqueFd(fds[0]);
    auto memory = shm::SharedMemory::create(shm::kExportPageBytes, page_fd);
    REQUIRE(memory.has_value());
    attachment->memory = std::move(*memory);
    attachment->peer = ::getpid();
    exports = std::make_unique<shm::Exports>(attachment, *new (attachment->memory.data()) shm::ExportPage());
  }
  [[nodiscard]] shm::ExportPage& page() const {
    return *reinterpret_cast<shm::ExportPage*>(attachment->memory.data());
  }
  [[nodiscard]] DeviceRegion region(std::size_t bytes, Rights rights = Rights::kReadWrite,
                                    Pages pages = Pages::kDefault) const {
    auto memory = OwnedMemory::create(bytes, pages);
    REQUIRE(memory.has_value());
    std::memset(memory->data(), static_cast<int>(kOld), bytes);
    auto record = std::make_shared<soft::RegionRecord>(memory->data(), bytes, rights, 0x77, memory->fd());
    const auto id = device->regions.add(record);
    REQUIRE(id.has_value());
    return DeviceRegion(
        std::make_unique<soft::SoftRegion>(device, std::move(record), *id, std::move(*memory)));
  }
  // The same of memory that Slime has not allocated.
  [[nodiscard]] DeviceRegion foreign(MutableBytes bytes, Rights rights = Rights::kReadWrite) const {
    auto record = std::make_shared<soft::RegionRecord>(bytes.data(), bytes.size(), rights, 0x74);
    const auto id = device->regions.add(record);
    REQUIRE(id.has_value());
    return DeviceRegion(std::make_unique<soft::SoftRegion>(device, std::move(record), *id, OwnedMemory()));
  }
  // Answers the one request that is there.
  void answer() const {
    auto packet = shm::receive_packet(attachment->socket.get());
    REQUIRE_MESSAGE(packet.has_value(), packet.status().to_string());
    const auto request = shm::decode_window_request(*packet);
    REQUIRE(request.has_value());
    UniqueFd descriptor;
    const shm::WindowReply reply = exports->answer(*request, device->regions, descriptor);
    const int sent[] = {descriptor.get()};
    REQUIRE(shm::send_packet(attachment->socket.get(), std::as_bytes(std::span(&reply, 1)),
                             std::span(sent).first(descriptor.valid() ? 1 : 0))
                .ok());
  }

  std::shared_ptr<soft::DeviceState> device = std::make_shared<soft::DeviceState>();
  std::shared_ptr<shm::Attachment> attachment = std::make_shared<shm::Attachment>();
  UniqueFd page_fd;
  UniqueFd peers_end;
  std::unique_ptr<shm::Exports> exports;
};

// The peer's side of it.
struct User {
  explicit User(const Owner& of, bool owner_readable = true) : owner(of) {
    auto made = Loop::create();
    REQUIRE(made.has_value());
    loop = std::move(*made);
    unmapper = std::make_unique<shm::Unmapper>(*loop);
    if (owner_readable) process.meet(owner.attachment->socket.get(), owners_word.word());
    windows = std::make_unique<shm::Windows>(*unmapper, process);
    windows->attach(owner.attachment, owner.page(), [this](const shm::WindowRequest& request) {
      return shm::send_packet(owner.peers_end.get(), std::as_bytes(std::span(&request, 1)), {});
    });
  }
  Status take_reply() const {
    auto packet = shm::receive_packet(owner.peers_end.get());
    REQUIRE(packet.has_value());
    const auto reply = shm::decode_window_reply(*packet);
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    return windows->on_reply(*reply, std::move(packet->descriptors));
  }
  // Asks, is answered, and looks again.
  PeerMemory::Reach reach(const DeviceRegion& region) const {
    const RemoteRegion remote = remote_of(region.describe());
    if (windows->reach(remote).way != PeerMemory::Way::kAsked) return windows->reach(remote);
    owner.answer();
    REQUIRE(take_reply().ok());
    return windows->reach(remote);
  }

  const Owner& owner;
  const InstanceId users_cookie = InstanceId::random();
  const InstanceId owners_cookie = InstanceId::random();
  shm::PeerProcess owners_word{owners_cookie, users_cookie, true};
  shm::PeerProcess process{users_cookie, owners_cookie, true};
  std::shared_ptr<Loop> loop;
  std::unique_ptr<shm::Unmapper> unmapper;
  std::unique_ptr<shm::Windows> windows;
};

// Runs `fn` in a process of its own, which exits with what it returns. Windows that are mapped here
// are mapped there, too.
template <class F>
pid_t in_child(Owner& owner, F fn) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    owner.attachment->socket.reset();
    _exit(fn());
  }
  owner.peers_end.reset();  // the child's alone, so that its end is seen
  return pid;
}

inline int wait_for(pid_t pid) {
  int state = 0;
  REQUIRE(::waitpid(pid, &state, WUNTRACED) == pid);
  return state;
}

}  // namespace slime::transport::testing
