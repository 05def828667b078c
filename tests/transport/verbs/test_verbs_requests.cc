// What a verbs connection asks of the device, and how it words its path, without an endpoint.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/transport/verbs/watched_device.h"
#include "transport/verbs/path.h"
#include "transport/verbs/request_builder.h"

namespace slime::transport::testing::verbs_requests_test {
namespace {

using verbs::Chain;
using verbs::Kind;
using verbs::OneSided;
using verbs::RequestBuilder;

constexpr std::uint32_t kScratchKey = 0x5c;

// A region on both sides of a connection: memory of this process, described as if a peer had it.
struct Rig {
  explicit Rig(RequestBuilder::Device limits = {4, 2, {0x1000, 1, kScratchKey}, false},
               FakeOptions fabric = FakeOptions::roce(1), std::size_t bytes = 1 << 16)
      : device(std::move(fabric)),
        memory(bytes),
        local(device.add(memory.data(), memory.size())),
        remote(local.describe(), *verbs::unpack_keys(local.describe().key, bytes), 1),
        builder(limits, counters, notifications),
        chain(std::make_unique<Chain>()) {}

  CopyBlock block(std::uint64_t local_offset, std::uint64_t remote_offset, std::uint64_t bytes) const {
    return {&local, local_offset, &remote, remote_offset, bytes};
  }
  // Adds all work requests of the operation to the chain.
  void build(OneSided& operation) {
    while (builder.next(operation, *chain)) {
    }
  }
  const ibv_send_wr& request(std::uint32_t index) const { return chain->requests[index]; }
  [[nodiscard]] std::uint64_t at_peer(std::uint64_t offset) const { return remote.access().base + offset; }

  WatchedDevice device;
  ByteVector memory;
  DeviceRegion local;
  RemoteRegion remote;
  EndpointCounters counters;
  std::uint64_t notifications = 0;
  RequestBuilder builder;
  std::unique_ptr<Chain> chain;
};

OneSided operation_of(Kind kind, std::span<const CopyBlock> copies) {
  OneSided out;
  out.kind = kind;
  out.batch = copies;
  return out;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE(
    "blocks that follow each other at the peer are one request, with as many pieces as the device takes") {
  Rig rig;
  std::vector<CopyBlock> copies;
  for (std::uint64_t i = 0; i < 6; ++i) copies.push_back(rig.block(i * 128, i * 64, 64));
  SUBCASE("a write gathers four") {
    OneSided write = operation_of(Kind::kWrite, copies);
    rig.build(write);
    REQUIRE(rig.chain->count == 2);
    CHECK(rig.request(0).opcode == IBV_WR_RDMA_WRITE);
    CHECK(rig.request(0).num_sge == 4);
    CHECK(rig.request(1).num_sge == 2);
    CHECK(rig.request(1).wr.rdma.remote_addr == rig.at_peer(4 * 64));
    CHECK(rig.counters.coalesced == 4);
    CHECK(rig.counters.bytes_sent == 6 * 64);
  }
  SUBCASE("a read scatters two") {
    OneSided read = operation_of(Kind::kRead, copies);
    rig.build(read);
    REQUIRE(rig.chain->count == 3);
    CHECK(rig.request(0).opcode == IBV_WR_RDMA_READ);
    CHECK(rig.request(2).num_sge == 2);
    CHECK(rig.counters.bytes_received == 6 * 64);
  }
}

TEST_CASE(
    "adjacent blocks are one piece, blocks without bytes are none, and scattered blocks are not joined") {
  Rig rig;
  const std::vector<CopyBlock> copies{rig.block(0, 0, 64), rig.block(9, 9, 0), rig.block(64, 64, 64),
                                      rig.block(128, 4096, 64)};
  OneSided write = operation_of(Kind::kWrite, copies);
  rig.build(write);
  REQUIRE(rig.chain->count == 2);
  CHECK(rig.request(0).num_sge == 1);
  CHECK(rig.request(0).sg_list[0].length == 128);
  CHECK(rig.request(1).wr.rdma.remote_addr == rig.at_peer(4096));
  CHECK(write.moved);
}

TEST_CASE("a request of 512 KiB or more asks for its completion, and none is larger than 1 MiB") {
  Rig rig({4, 2, {}, false}, FakeOptions::roce(1), 3 << 20);
  const CopyBlock whole = rig.block(0, 0, (2 << 20) + 100);
  OneSided write = operation_of(Kind::kWrite, {&whole, 1});
  rig.build(write);
  REQUIRE(rig.chain->count == 3);
  CHECK(rig.request(0).sg_list[0].length == limits::kWorkRequestBytes);
  CHECK(rig.request(0).send_flags == IBV_SEND_SIGNALED);
  CHECK(rig.request(2).sg_list[0].length == 100);
  CHECK(rig.request(2).send_flags == 0);
  CHECK(rig.request(2).wr.rdma.remote_addr == rig.at_peer(2 << 20));
}

TEST_CASE("a region of several registrations is cut where its keys change") {
  FakeOptions fabric = FakeOptions::roce(1);
  fabric.devices[0].attributes.max_mr_size = 2 << 20;
  Rig rig({4, 2, {}, false}, std::move(fabric), 4 << 20);
  REQUIRE(rig.remote.access().keys != nullptr);
  const CopyBlock over = rig.block((2 << 20) - 8, (2 << 20) - 8, 16);
  OneSided write = operation_of(Kind::kWrite, {&over, 1});
  ibv_send_wr request{};
  ibv_sge part{};
  CHECK_FALSE(rig.builder.single(write, 0, request, part));
  CHECK_FALSE(write.posted);
  rig.build(write);
  REQUIRE(rig.chain->count == 2);
  CHECK(rig.request(0).sg_list[0].length == 8);
  CHECK(rig.request(0).wr.rdma.rkey == rig.remote.access().keys->at(0));
  CHECK(rig.request(1).wr.rdma.rkey == rig.remote.access().keys->at(1));
}

TEST_CASE("one block is one request, inline where it is a short write") {
  Rig rig;
  const CopyBlock block = rig.block(8, 16, 100);
  ibv_send_wr request{};
  ibv_sge part{};
  SUBCASE("a short write") {
    OneSided write = operation_of(Kind::kWrite, {&block, 1});
    REQUIRE(rig.builder.single(write, 100, request, part));
    CHECK(request.send_flags == IBV_SEND_INLINE);
    CHECK(write.posted);
    CHECK(write.started);
  }
  SUBCASE("a write that is too long for that") {
    OneSided write = operation_of(Kind::kWrite, {&block, 1});
    REQUIRE(rig.builder.single(write, 99, request, part));
    CHECK(request.send_flags == 0);
    CHECK(part.addr == reinterpret_cast<std::uintptr_t>(rig.memory.data()) + 8);
    CHECK(request.wr.rdma.remote_addr == rig.at_peer(16));
  }
  SUBCASE("a read") {
    OneSided read = operation_of(Kind::kRead, {&block, 1});
    REQUIRE(rig.builder.single(read, 100, request, part));
    CHECK(request.opcode == IBV_WR_RDMA_READ);
    CHECK(request.send_flags == 0);
    CHECK(rig.counters.bytes_received == 100);
  }
  SUBCASE("a block without a byte is none") {
    const CopyBlock empty = rig.block(8, 16, 0);
    OneSided write = operation_of(Kind::kWrite, {&empty, 1});
    CHECK_FALSE(rig.builder.single(write, 100, request, part));
  }
}

TEST_CASE("a notification goes with the last request of its batch, or as a request of its own") {
  Rig rig;
  OneSided write = operation_of(Kind::kWrite, {});
  std::vector<CopyBlock> copies;
  SUBCASE("with the data") {
    copies = {rig.block(0, 0, 8), rig.block(0, 4096, 8)};
    write.batch = copies;
  }
  SUBCASE("alone") {}
  write.has_imm = true;
  write.imm = 0x01020304;
  rig.build(write);
  REQUIRE(rig.chain->count == (copies.empty() ? 1 : 2));
  const ibv_send_wr& last = rig.request(rig.chain->count - 1);
  CHECK(last.opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
  CHECK(last.imm_data == htobe32(0x01020304));
  CHECK((last.send_flags & IBV_SEND_FENCE) == 0);
  CHECK(rig.notifications == 1);
}

TEST_CASE("a read flushes the data of a batch, and a notification waits for its answer") {
  Rig rig({4, 2, {0x1000, 1, kScratchKey}, true});
  const CopyBlock block = rig.block(0, 100, 28);
  OneSided write = operation_of(Kind::kWrite, {&block, 1});
  write.flush_read = true;
  SUBCASE("alone") {
    rig.build(write);
    REQUIRE(rig.chain->count == 2);
  }
  SUBCASE("with a notification") {
    write.has_imm = true;
    rig.build(write);
    REQUIRE(rig.chain->count == 3);
    CHECK(rig.request(2).opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
    CHECK((rig.request(2).send_flags & IBV_SEND_FENCE) != 0);
  }
  CHECK(rig.request(0).opcode == IBV_WR_RDMA_WRITE);
  CHECK(rig.request(1).opcode == IBV_WR_RDMA_READ);
  CHECK(rig.request(1).sg_list[0].lkey == kScratchKey);
  CHECK(rig.request(1).wr.rdma.remote_addr == rig.at_peer(100));
}

TEST_CASE("an atomic is one request") {
  Rig rig;
  OneSided atomic = operation_of(Kind::kCompareSwap, {});
  atomic.atomic = {rig.block(24, 16, 8), 5, 6};
  rig.build(atomic);
  REQUIRE(rig.chain->count == 1);
  CHECK(rig.request(0).opcode == IBV_WR_ATOMIC_CMP_AND_SWP);
  CHECK(rig.request(0).wr.atomic.remote_addr == rig.at_peer(16));
  CHECK(rig.request(0).wr.atomic.compare_add == 5);
  CHECK(rig.request(0).wr.atomic.swap == 6);
  CHECK(rig.request(0).sg_list[0].addr == reinterpret_cast<std::uintptr_t>(rig.memory.data()) + 24);
}

// ------------------------------------------------------------------------------------------- Path

TEST_CASE("a lost connection names peer, path and cause, with the code of the cause") {
  WatchedDevice device;
  verbs::Path::Ends ends;
  ends.ours.gid = ipv4_gid(10, 9, 0, 1);
  ends.peer.gid = ipv4_gid(10, 9, 0, 2);
  ends.ours.queue_pairs[0].number = 17;
  ends.peer.queue_pairs[0].number = 18;
  ends.mtu = IBV_MTU_1024;
  ends.retries = {18, 5};
  const verbs::Path path(device.state->context(), ends, "worker:7", "tcp 1 -> 2");
  for (const std::string_view part : {"fake0 port 1", "::ffff:10.9.0.1 -> ::ffff:10.9.0.2", "QP 17 -> 18",
                                      "MTU 1024", "timeout 18", "retries 5"})
    CHECK_MESSAGE(has(path.text(), part), path.text());
  const Status lost = path.lost(Status(Code::kCorrupt, "it broke the protocol"));
  CHECK(lost.code() == Code::kCorrupt);
  for (const std::string_view part : {"worker:7", "tcp 1 -> 2", "it broke the protocol", "QP 17 -> 18"})
    CHECK_MESSAGE(has(lost.text(), part), lost.text());
  CHECK(path.unavailable(Status(Code::kInternal, "no memory")).code() == Code::kUnavailable);
}

TEST_CASE("a port that is down is the reason of an error, unless the peer answered") {
  WatchedDevice device;
  const verbs::Path path(device.state->context(), {}, "peer", "tcp");
  ibv_wc completion{};
  completion.status = IBV_WC_LOC_PROT_ERR;
  CHECK(path.explain("read", completion).code() == Code::kInternal);
  device.fabric.set_port_state("fake0", IBV_PORT_DOWN);
  CHECK(path.explain("read", completion).code() == Code::kUnavailable);
  completion.status = IBV_WC_REM_ACCESS_ERR;
  CHECK(path.explain("read", completion).code() == Code::kPermissionDenied);
}

}  // namespace slime::transport::testing::verbs_requests_test
