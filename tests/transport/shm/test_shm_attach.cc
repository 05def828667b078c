// How two processes come to share rings, and which processes cannot.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>

#include "tests/transport/tcp_host.h"
#include "transport/shm/packet.h"
#include "transport/shm/parameters.h"
#include "transport/soft/frames.h"

namespace slime::transport::testing {
namespace {

using std::chrono::seconds;

TcpHost shm_host(const Clock& clock = steady_clock()) { return TcpHost("host", {}, clock, {}, "shm"); }

// What a port tells of itself, and the same with our changes.
shm::Parameters told_by(const PendingEndpoint& pending) {
  const ByteVector all = pending.parameters();
  const auto decoded = shm::Parameters::decode(Bytes(all).subspan(soft::Parameters::kBytes));
  REQUIRE_MESSAGE(decoded.has_value(), decoded.status().to_string());
  return *decoded;
}
ByteVector parameters_of(const shm::Parameters& parameters) {
  ByteVector out = soft::Parameters{.slot_bytes = 8192, .initial_credits = 8}.encode();
  ByteWriter(out).append(parameters.encode());
  return out;
}

std::unique_ptr<PendingEndpoint> prepare(TcpHost& host) {
  auto pending = host.port->prepare();
  REQUIRE_MESSAGE(pending.has_value(), pending.status().to_string());
  return std::move(*pending);
}

struct SocketPair {
  SocketPair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    ours = UniqueFd(fds[0]);
    theirs = UniqueFd(fds[1]);
  }
  UniqueFd ours;
  UniqueFd theirs;
};

struct Ended final : Receiver {
  void on_message(Message) noexcept override {}
  void on_imm(std::uint32_t) noexcept override {}
  void on_ready() noexcept override {}
  void on_closed(const Status& reason) noexcept override { why = std::make_unique<Status>(reason); }
  std::unique_ptr<Status> why;
};

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

struct Server {
  Server() : host(TcpServer({}, steady_clock(), {}, "shm")) {}
  TcpServer host;
};

TEST_CASE("parameters and packets are these bytes") {
  shm::Parameters parameters;
  parameters.uid = 0x01020304;
  parameters.pid = 0x0a0b0c0d;
  parameters.boot.bytes.fill(std::byte{0xb0});
  parameters.socket_name.bytes.fill(std::byte{0x50});
  parameters.cookie.bytes.fill(std::byte{0xc0});
  CHECK(to_hex(parameters.encode()) ==
        "02000000"
        "04030201"
        "0d0c0b0a"
        "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0"
        "50505050505050505050505050505050"
        "c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0");
  CHECK(shm::local_socket_name(parameters.socket_name) == "slime-50505050505050505050505050505050");
  shm::AttachPacket attach;
  attach.cookie = parameters.cookie.bytes;
  attach.ring_bytes = 0x20000;
  attach.bell_number = 7;
  attach.word = 0x7f0011223344;
  CHECK(to_hex(std::as_bytes(std::span(&attach, 1))) ==
        "534c534d"
        "03000000"
        "c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0"
        "00000200"
        "07000000"
        "44332211007f0000");
  shm::AttachedPacket attached;
  attached.bell_number = 9;
  attached.word = 0x7f0055667788;
  attached.fetches = 1;
  CHECK(to_hex(std::as_bytes(std::span(&attached, 1))) ==
        "534c534d"
        "03000000"
        "09000000"
        "00000000"
        "88776655007f0000"
        "0100000000000000");
  shm::MetPacket met;
  met.fetches = 1;
  CHECK(to_hex(std::as_bytes(std::span(&met, 1))) ==
        "534c534d"
        "03000000"
        "0100000000000000");
  shm::WindowRequest request;
  request.region = 0x0000000500000004;
  request.key = 0x1122334455667788;
  CHECK(to_hex(std::as_bytes(std::span(&request, 1))) ==
        "534c534d"
        "03000000"
        "0400000005000000"
        "8877665544332211");
  shm::WindowReply reply;
  reply.region = request.region;
  reply.key = request.key;
  reply.rights = 3;
  reply.slot = 0x0a;
  reply.ticket = 0x0b;
  reply.length_bytes = 0x200000;
  reply.address = 0x7f0099aabbcc;
  CHECK(to_hex(std::as_bytes(std::span(&reply, 1))) ==
        "534c534d"
        "03000000"
        "0400000005000000"
        "8877665544332211"
        "00"
        "03"
        "0a00"
        "00000000"
        "0b00000000000000"
        "0000200000000000"
        "ccbbaa99007f0000");
}

TEST_CASE("a peer of another host, or of another user, is told what to use instead") {
  TcpHost host = shm_host();
  {
    auto pending = prepare(host);
    shm::Parameters other = told_by(*pending);
    other.boot = InstanceId::random();
    SocketPair sockets;
    const auto made = pending->finish(parameters_of(other), std::move(sockets.ours), {"a", "far", true});
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code() == Code::kUnavailable);
    CHECK(made.error().text() ==
          "far is on another host: shared memory works within one; use verbs or tcp for this peer");
  }
  auto pending = prepare(host);
  shm::Parameters other = told_by(*pending);
  ++other.uid;
  SocketPair sockets;
  const auto made = pending->finish(parameters_of(other), std::move(sockets.ours), {"a", "near", true});
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code() == Code::kPermissionDenied);
  CHECK(made.error().text().find("processes of one user: near has uid") != std::string::npos);
}

TEST_CASE("a peer of this host whose socket is not there is unavailable, with the reasons that there are") {
  TcpHost host = shm_host();
  auto pending = prepare(host);
  shm::Parameters other = told_by(*pending);
  other.socket_name = InstanceId::random();
  SocketPair sockets;
  const auto made = pending->finish(parameters_of(other), std::move(sockets.ours), {"a", "near", true});
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().code() == Code::kUnavailable);
  CHECK(made.error().text().find("another network namespace, on another host, or gone") != std::string::npos);
}

TEST_CASE("parameters that are damaged, or of another version, are corrupt") {
  TcpHost host = shm_host();
  const auto refused = [&](ByteVector bytes) {
    SocketPair sockets;
    const auto made = prepare(host)->finish(bytes, std::move(sockets.ours), {"a", "b", true});
    return made.status().code();
  };
  shm::Parameters other = told_by(*prepare(host));
  ByteVector good = parameters_of(other);
  CHECK(refused(ByteVector(good.begin(), good.end() - 1)) == Code::kCorrupt);
  good.push_back(std::byte{0});
  CHECK(refused(good) == Code::kCorrupt);
  ++other.version;
  CHECK(refused(parameters_of(other)) == Code::kCorrupt);
  CHECK(refused({}) == Code::kCorrupt);
}

TEST_CASE("a peer that never attaches ends the connection by the handshake's bound") {
  ManualClock clock;
  TcpHost host = shm_host(clock);
  auto pending = prepare(host);
  const shm::Parameters other = told_by(*pending);
  SocketPair sockets;
  auto made = pending->finish(parameters_of(other), std::move(sockets.ours), {"a", "silent", false});
  REQUIRE_MESSAGE(made.has_value(), made.status().to_string());
  Ended ended;
  (*made)->set_receiver(ended);
  const auto turns = [&] {
    while (host.loop->poll(Nanos::zero())) {
    }
  };
  turns();
  CHECK(ended.why == nullptr);
  clock.advance(limits::kHandshakeTimeout + seconds(1));
  turns();
  REQUIRE(ended.why != nullptr);
  CHECK(ended.why->code() == Code::kUnavailable);
  CHECK(ended.why->text().find("did not attach") != std::string::npos);
}

TEST_CASE(
    "whoever comes to the local socket with nonsense, or a wrong cookie, is sent away, and peers get in") {
  Server server;
  const std::string name = shm::local_socket_name(told_by(*prepare(server.host)).socket_name);
  const auto knock = [&](Bytes bytes) {
    auto socket = shm::connect_local(name);
    REQUIRE_MESSAGE(socket.has_value(), socket.status().to_string());
    REQUIRE(shm::send_packet(socket->get(), bytes, {}).ok());
    Result<shm::Packet> answer = Status(Code::kInternal, "nothing yet");
    REQUIRE(server.host.until([&] {
      answer = shm::receive_packet(socket->get());
      return answer || answer.error().code() != Code::kResourceExhausted;
    }));
    return answer.status().code();
  };
  CHECK(knock(as_bytes("hello")) == Code::kUnavailable);
  const shm::AttachPacket unknown;
  CHECK(knock(std::as_bytes(std::span(&unknown, 1))) == Code::kUnavailable);

  auto silent = shm::connect_local(name);  // says nothing, and holds up no other connection
  REQUIRE(silent.has_value());
  HandshakeOptions options = as("client");
  options.provider = "shm";
  Attempt attempt(server.host, server.host.listener->address(), options);
  REQUIRE(server.host.until([&] { return attempt.done() && !server.host.acceptor.connected.empty(); }));
  CHECK_MESSAGE(attempt.connected(), attempt.text());
}

TEST_CASE("a peer whose local socket stays full ends the connection by the same bound") {
  ManualClock clock;
  TcpHost host = shm_host(clock);
  auto pending = prepare(host);
  shm::Parameters other = told_by(*pending);
  other.socket_name = InstanceId::random();
  const std::string name = shm::local_socket_name(other.socket_name);
  auto full = shm::listen_local(name);
  REQUIRE(full.has_value());
  REQUIRE(::listen(full->get(), 0) == 0);
  std::vector<UniqueFd> waiting;
  Result<UniqueFd> next = shm::connect_local(name);
  for (; next && next->valid(); next = shm::connect_local(name)) waiting.push_back(std::move(*next));
  REQUIRE(next.has_value());
  SocketPair sockets;
  auto made = pending->finish(parameters_of(other), std::move(sockets.ours), {"a", "busy", true});
  REQUIRE_MESSAGE(made.has_value(), made.status().to_string());
  Ended ended;
  (*made)->set_receiver(ended);
  clock.advance(limits::kHandshakeTimeout + seconds(1));
  for (int turn = 0; turn < 100; ++turn) host.loop->poll(Nanos::zero());
  REQUIRE(ended.why != nullptr);
  CHECK(ended.why->code() == Code::kUnavailable);
}

TEST_CASE("a connected peer costs at most four descriptors, and all of them come back") {
  Server server;
  TcpHost client = shm_host();
  const std::size_t before = open_descriptors();
  constexpr std::size_t kPeers = 20;
  {
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    for (std::size_t i = 0; i < kPeers; ++i) {
      Attempt attempt(client, server.host.listener->address(), client.options);
      REQUIRE(client.until([&] {
        server.host.loop->poll(Nanos::zero());
        return attempt.done() && server.host.acceptor.connected.size() == i + 1;
      }));
      REQUIRE_MESSAGE(attempt.connected(), attempt.text());
      endpoints.push_back(std::move((**attempt.result).endpoint));
    }
    // The rings are mapped once both have attached.
    for (int i = 0; i < 100; ++i) {
      client.loop->poll(Nanos::zero());
      server.host.loop->poll(Nanos::zero());
    }
    CHECK(open_descriptors() - before <= 2 * 4 * kPeers);
  }
  server.host.acceptor.connected.clear();
  CHECK(open_descriptors() == before);
}

TEST_CASE("both sides must have the same provider") {
  Server server;
  Attempt attempt(server.host, server.host.listener->address(), as("client"));
  REQUIRE(server.host.until([&] { return attempt.done(); }));
  CHECK_FALSE(attempt.connected());
  CHECK(attempt.text().find("no provider that both can use") != std::string::npos);
}

}  // namespace
}  // namespace slime::transport::testing
