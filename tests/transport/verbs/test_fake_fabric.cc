#include <cerrno>

#include "tests/transport/verbs/fake_node.h"

// The fake fabric's data path: transfers, completions, errors.
namespace slime::transport::testing {
namespace {

// Polls until a completion arrives, running steps of the fabric.
std::vector<ibv_wc> wait(FakeNode& node, FakeFabric& fabric) {
  for (int i = 0; i < 10'000; ++i) {
    auto completions = node.poll();
    if (!completions.empty()) return completions;
    fabric.progress();
  }
  return {};
}

TEST_CASE("a message lands in the oldest receive, across its pieces") {
  FakeFabric fabric;
  FakeLink link(fabric);
  REQUIRE(link.b.post_receive(11, {link.at_b(0, 10), link.at_b(100, 90)}) == 0);
  REQUIRE(link.b.post_receive(12, {link.at_b(200, 10)}) == 0);
  REQUIRE(link.a.post(make_work(1, IBV_WR_SEND), {link.at_a(0, 20), link.at_a(500, 30)}) == 0);
  const auto sent = wait(link.a, fabric);
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].status == IBV_WC_SUCCESS);
  CHECK(sent[0].wr_id == 1);
  CHECK(sent[0].opcode == IBV_WC_SEND);
  CHECK(sent[0].qp_num == link.a.qp->qp_num);
  const auto received = wait(link.b, fabric);
  REQUIRE(received.size() == 1);
  CHECK(received[0].wr_id == 11);
  CHECK(received[0].opcode == IBV_WC_RECV);
  CHECK(received[0].byte_len == 50);
  CHECK(received[0].wc_flags == 0);
  CHECK(received[0].qp_num == link.b.qp->qp_num);
  CHECK(link.arrived(0, 0, 10));
  CHECK(link.arrived(10, 100, 10));
  CHECK(link.arrived(500, 110, 30));
}

TEST_CASE("an immediate travels with a message and with a write") {
  FakeFabric fabric;
  FakeLink link(fabric);
  REQUIRE(link.b.post_receive(1, {link.at_b(0, 64)}) == 0);
  REQUIRE(link.b.post_receive(2, {}) == 0);
  ibv_send_wr message = make_work(1, IBV_WR_SEND_WITH_IMM);
  message.imm_data = 0x11223344;
  REQUIRE(link.a.post(message, {link.at_a(0, 8)}) == 0);
  ibv_send_wr write = link.write(2, 1000);
  write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  write.imm_data = 0x55667788;
  REQUIRE(link.a.post(write, {link.at_a(0, 300)}) == 0);
  CHECK(statuses(link.a.poll()) == Statuses{IBV_WC_SUCCESS, IBV_WC_SUCCESS});
  const auto got = link.b.poll();
  REQUIRE(got.size() == 2);
  CHECK(got[0].opcode == IBV_WC_RECV);
  CHECK(got[0].imm_data == 0x11223344);
  CHECK(got[0].wc_flags == IBV_WC_WITH_IMM);
  CHECK(got[1].wr_id == 2);
  CHECK(got[1].opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(got[1].imm_data == 0x55667788);
  CHECK(got[1].wc_flags == IBV_WC_WITH_IMM);
  CHECK(got[1].byte_len == 300);
  CHECK(link.arrived(0, 1000, 300));
}

TEST_CASE("a read scatters into its pieces") {
  FakeFabric fabric;
  FakeLink link(fabric);
  REQUIRE(link.b.post(make_work(9, IBV_WR_RDMA_READ, link.bytes_a.data() + 40, link.mr_a->rkey),
                      {link.at_b(0, 8), link.at_b(64, 24)}) == 0);
  const auto got = wait(link.b, fabric);
  REQUIRE(got.size() == 1);
  CHECK(got[0].status == IBV_WC_SUCCESS);
  CHECK(got[0].opcode == IBV_WC_RDMA_READ);
  CHECK(got[0].byte_len == 32);
  CHECK(link.arrived(40, 0, 8));
  CHECK(link.arrived(48, 64, 24));
}

TEST_CASE("fetch-and-add and compare-and-swap return the old value") {
  FakeFabric fabric;
  FakeLink link(fabric);
  auto* word = reinterpret_cast<std::uint64_t*>(link.bytes_b.data() + 64);
  const auto* result = reinterpret_cast<const std::uint64_t*>(link.bytes_a.data());
  *word = 40;
  ibv_send_wr add = make_work(1, IBV_WR_ATOMIC_FETCH_AND_ADD);
  add.wr.atomic.remote_addr = reinterpret_cast<std::uintptr_t>(word);
  add.wr.atomic.rkey = link.mr_b->rkey;
  add.wr.atomic.compare_add = 2;
  REQUIRE(link.a.post(add, {link.at_a(0, 8)}) == 0);
  auto got = wait(link.a, fabric);
  REQUIRE(statuses(got) == Statuses{IBV_WC_SUCCESS});
  CHECK(got[0].opcode == IBV_WC_FETCH_ADD);
  CHECK(*result == 40);
  CHECK(*word == 42);
  ibv_send_wr swap = add;
  swap.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  swap.wr.atomic.compare_add = 41;  // differs from the word
  swap.wr.atomic.swap = 7;
  REQUIRE(link.a.post(swap, {link.at_a(0, 8)}) == 0);
  got = wait(link.a, fabric);
  CHECK(got[0].opcode == IBV_WC_COMP_SWAP);
  CHECK(*result == 42);
  CHECK(*word == 42);
  swap.wr.atomic.compare_add = 42;
  REQUIRE(link.a.post(swap, {link.at_a(0, 8)}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_SUCCESS});
  CHECK(*word == 7);
}

TEST_CASE("an atomic on an odd address is an invalid request") {
  FakeFabric fabric;
  FakeLink link(fabric);
  ibv_send_wr add = make_work(1, IBV_WR_ATOMIC_FETCH_AND_ADD);
  add.wr.atomic.remote_addr = reinterpret_cast<std::uintptr_t>(link.bytes_b.data()) + 4;
  add.wr.atomic.rkey = link.mr_b->rkey;
  REQUIRE(link.a.post(add, {link.at_a(0, 8)}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_REM_INV_REQ_ERR});
}

TEST_CASE("inline bytes are taken when they are posted, without a key") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.freeze("fake0");
  ByteVector bytes(16, std::byte{5});
  const ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(bytes.data()), .length = 16, .lkey = 0};
  REQUIRE(link.a.post(link.write(1, 0, IBV_SEND_SIGNALED | IBV_SEND_INLINE), {sge}) == 0);
  bytes.assign(16, std::byte{6});
  fabric.freeze("fake0", false);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_SUCCESS});
  CHECK(link.bytes_b[0] == std::byte{5});
  CHECK(link.bytes_b[15] == std::byte{5});
}

TEST_CASE("a success that is not signaled completes silently") {
  FakeFabric fabric;
  FakeLink link(fabric);
  REQUIRE(link.a.post(link.write(1, 0, 0), {link.at_a(0, 8)}) == 0);
  REQUIRE(link.a.post(link.write(2, 8), {link.at_a(8, 8)}) == 0);
  const auto got = link.a.poll();
  REQUIRE(got.size() == 1);
  CHECK(got[0].wr_id == 2);
  CHECK(link.arrived(0, 0, 16));
}

TEST_CASE("send slots are free once a later signaled completion has been polled, not before") {
  FakeFabric fabric;
  FakeLink link(fabric);
  for (std::uint64_t i = 0; i < 15; ++i) REQUIRE(link.a.post(link.write(i, 0, 0), {link.at_a(0, 8)}) == 0);
  REQUIRE(link.a.post(link.write(15, 0), {link.at_a(0, 8)}) == 0);
  fabric.settle();  // all work requests executed, none polled
  CHECK(link.a.post(link.write(16, 0), {link.at_a(0, 8)}) == ENOMEM);
  CHECK(link.a.poll().size() == 1);
  CHECK(link.a.post(link.write(16, 0), {link.at_a(0, 8)}) == 0);
  CHECK(fabric.queue_pairs("fake0").at(0).occupied == 1);
}

TEST_CASE("a chain that does not fit is taken up to the request that failed") {
  FakeFabric fabric;
  FakeLink link(fabric, {.sends = 2});
  ibv_sge sge = link.at_a(0, 8);
  std::vector<ibv_send_wr> chain;
  for (std::uint64_t i = 0; i < 3; ++i) chain.push_back(link.write(i, 0));
  for (std::size_t i = 0; i < 3; ++i) {
    chain[i].sg_list = &sge;
    chain[i].num_sge = 1;
    chain[i].next = i < 2 ? &chain[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  CHECK(link.a.f.post_send(link.a.qp, chain.data(), &bad) == ENOMEM);
  CHECK(bad == &chain[2]);
  CHECK(link.a.poll().size() == 2);
  CHECK(fabric.counters("fake0").doorbells == 1);
  CHECK(fabric.counters("fake0").work_requests == 2);
}

TEST_CASE("what a driver refuses is refused when it is posted") {
  FakeFabric fabric;
  FakeLink link(fabric);
  const ibv_sge one = link.at_a(0, 8);
  CHECK(link.a.post(link.write(1, 0), {one, one, one, one, one}) == EINVAL);
  CHECK(link.a.post(link.write(1, 0, IBV_SEND_INLINE), {link.at_a(0, 65)}) == EINVAL);
  CHECK(link.a.post(make_work(1, IBV_WR_RDMA_READ, link.bytes_b.data(), link.mr_b->rkey, IBV_SEND_INLINE),
                    {one}) == EINVAL);
  CHECK(link.a.post(make_work(1, IBV_WR_ATOMIC_FETCH_AND_ADD), {link.at_a(0, 4)}) == EINVAL);
  CHECK(link.a.post(make_work(1, IBV_WR_LOCAL_INV), {}) == EINVAL);
  CHECK(fabric.counters().work_requests == 0);
}

TEST_CASE("a device without atomics refuses them") {
  FakeOptions options = FakeOptions::roce();
  options.devices[0].attributes.atomic_cap = IBV_ATOMIC_NONE;
  FakeFabric fabric(options);
  FakeLink link(fabric);
  CHECK(link.a.post(make_work(1, IBV_WR_ATOMIC_FETCH_AND_ADD), {link.at_a(0, 8)}) == EINVAL);
}

// ---- errors of access

struct Refused {
  const char* what;
  void (*change)(ibv_send_wr& wr, FakeLink& link);
};

TEST_CASE("a write outside of what the key allows fails both queue pairs and changes nothing") {
  const Refused cases[] = {
      {"unknown key", [](ibv_send_wr& wr, FakeLink&) { wr.wr.rdma.rkey += 1; }},
      {"the local key as the remote one",
       [](ibv_send_wr& wr, FakeLink& link) { wr.wr.rdma.rkey = link.mr_b->lkey; }},
      {"before the region", [](ibv_send_wr& wr, FakeLink&) { wr.wr.rdma.remote_addr -= 1; }},
      {"past the region",
       [](ibv_send_wr& wr, FakeLink&) { wr.wr.rdma.remote_addr += FakeLink::kBytes - 63; }},
      {"a key of another device", [](ibv_send_wr& wr, FakeLink& link) { wr.wr.rdma.rkey = link.mr_a->rkey; }},
      {"a region that is gone", [](ibv_send_wr&, FakeLink& link) { link.b.remove_region(link.mr_b); }},
      {"no right to write",
       [](ibv_send_wr& wr, FakeLink& link) {
         wr.wr.rdma.rkey = link.b.add_region(link.bytes_b, IBV_ACCESS_REMOTE_READ)->rkey;
       }},
  };
  for (const Refused& one : cases) {
    CAPTURE(one.what);
    FakeFabric fabric;
    FakeLink link(fabric);
    const ByteVector before = link.bytes_b;
    ibv_send_wr wr = link.write(1, 0);
    one.change(wr, link);
    REQUIRE(link.a.post(wr, {link.at_a(0, 64)}) == 0);
    CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_REM_ACCESS_ERR});
    CHECK(link.bytes_b == before);
    CHECK(fabric.queue_pairs("fake0").at(0).attributes.qp_state == IBV_QPS_ERR);
    CHECK(fabric.queue_pairs("fake1").at(0).attributes.qp_state == IBV_QPS_ERR);
    using Events = std::vector<ibv_event_type>;
    CHECK(link.b.take_events() == Events{IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_LAST_WQE_REACHED});
    CHECK(link.a.take_events() == Events{IBV_EVENT_QP_LAST_WQE_REACHED});
  }
}

TEST_CASE("a queue pair that does not let its peer write makes that an invalid request") {
  FakeFabric fabric;
  FakeLink link(fabric);
  FakeNode::Path path;
  path.attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  REQUIRE(link.b.f.modify_qp(link.b.qp, &path.attributes, IBV_QP_ACCESS_FLAGS) == 0);
  REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, 8)}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_REM_INV_REQ_ERR});
}

TEST_CASE("a bad local key fails the sender alone") {
  FakeFabric fabric;
  FakeLink link(fabric);
  ibv_sge bad = link.at_a(0, 8);
  bad.lkey = link.mr_a->rkey;
  REQUIRE(link.a.post(link.write(1, 0), {bad}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_LOC_PROT_ERR});
  CHECK(fabric.queue_pairs("fake0").at(0).attributes.qp_state == IBV_QPS_ERR);
  CHECK(fabric.queue_pairs("fake1").at(0).attributes.qp_state == IBV_QPS_RTS);
}

TEST_CASE("a read needs local write access") {
  FakeFabric fabric;
  FakeLink link(fabric);
  const ibv_mr* constant = link.a.add_region(link.bytes_a, 0);
  REQUIRE(link.a.post(make_work(1, IBV_WR_RDMA_READ, link.bytes_b.data(), link.mr_b->rkey),
                      {sge_of(MutableBytes(link.bytes_a).first(8), constant)}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_LOC_PROT_ERR});
}

TEST_CASE("a message that is larger than the receive is an error on both sides") {
  FakeFabric fabric;
  FakeLink link(fabric);
  REQUIRE(link.b.post_receive(5, {link.at_b(0, 16)}) == 0);
  REQUIRE(link.a.post(make_work(1, IBV_WR_SEND), {link.at_a(0, 17)}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_REM_INV_REQ_ERR});
  const auto got = link.b.poll();
  REQUIRE(statuses(got) == Statuses{IBV_WC_LOC_LEN_ERR});
  CHECK(got[0].wr_id == 5);
  CHECK(link.bytes_b[0] == std::byte{0});
}

TEST_CASE("a receive with a bad key is an error on both sides") {
  FakeFabric fabric;
  FakeLink link(fabric);
  ibv_sge bad = link.at_b(0, 16);
  bad.lkey ^= 1;
  REQUIRE(link.b.post_receive(5, {bad}) == 0);
  REQUIRE(link.a.post(make_work(1, IBV_WR_SEND), {link.at_a(0, 8)}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_REM_OP_ERR});
  CHECK(statuses(link.b.poll()) == Statuses{IBV_WC_LOC_PROT_ERR});
}

TEST_CASE("after an error everything that is posted flushes, each with a completion") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.freeze("fake0");
  ibv_send_wr bad = link.write(1, 0, 0);
  bad.wr.rdma.rkey += 1;
  REQUIRE(link.a.post(bad, {link.at_a(0, 8)}) == 0);
  REQUIRE(link.a.post(link.write(2, 0, 0), {link.at_a(0, 8)}) == 0);
  fabric.freeze("fake0", false);
  fabric.settle();
  REQUIRE(link.a.post(link.write(3, 0, 0), {link.at_a(0, 8)}) == 0);  // in the error state already
  const auto got = link.a.poll();
  REQUIRE(statuses(got) == Statuses{IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR});
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(got[i].wr_id == i + 1);
    CHECK(got[i].qp_num == link.a.qp->qp_num);
  }
  CHECK(fabric.queue_pairs("fake0").at(0).occupied == 0);
}

// ---- waiting for the peer

TEST_CASE("without a receive the sender waits, and goes on when there is one") {
  FakeFabric fabric;
  FakeLink link(fabric);
  REQUIRE(link.a.post(make_work(1, IBV_WR_SEND), {link.at_a(0, 8)}) == 0);
  fabric.settle();
  CHECK(fabric.counters("fake1").rnr_events == 1);
  REQUIRE(link.b.post_receive(1, {link.at_b(0, 8)}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_SUCCESS});
  CHECK(link.arrived(0, 0, 8));
}

TEST_CASE("the sender gives up on a peer that never has a receive") {
  FakeFabric fabric;
  FakeLink link(fabric);
  REQUIRE(link.a.post(make_work(1, IBV_WR_SEND), {link.at_a(0, 8)}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_RNR_RETRY_EXC_ERR});
  CHECK(fabric.counters("fake1").rnr_events == 7);  // the first try and rnr_retry more
  CHECK(fabric.queue_pairs("fake1").at(0).attributes.qp_state == IBV_QPS_RTS);
}

TEST_CASE("a write with an immediate needs a receive, but its bytes arrive before") {
  FakeFabric fabric;
  FakeLink link(fabric);
  ibv_send_wr wr = link.write(1, 0);
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  REQUIRE(link.a.post(wr, {link.at_a(0, 64)}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_RNR_RETRY_EXC_ERR});
  CHECK(link.arrived(0, 0, 64));
}

TEST_CASE("a peer that is gone, not ready or elsewhere never answers") {
  struct Case {
    const char* silence;
    void (*change)(FakeLink& link);
  };
  const Case cases[] = {
      {"no such queue pair there",
       [](FakeLink& link) { link.b.f.destroy_qp(std::exchange(link.b.qp, nullptr)); }},
      {"the remote queue pair is not ready to receive",
       [](FakeLink& link) {
         FakeNode::Path path;
         REQUIRE(link.b.modify(IBV_QPS_ERR, path, 0) == 0);
       }},
      {"the remote queue pair expects another packet sequence number",
       [](FakeLink& link) {
         FakeNode::Path path = link.b.path_to(link.a);
         REQUIRE(link.b.modify(IBV_QPS_RESET, path, 0) == 0);
         path.attributes.rq_psn = 8;
         link.b.connect(path);
       }},
      {"the remote queue pair is connected to another one",
       [](FakeLink& link) {
         FakeNode::Path path = link.b.path_to(link.a);
         REQUIRE(link.b.modify(IBV_QPS_RESET, path, 0) == 0);
         path.attributes.dest_qp_num ^= 1;
         link.b.connect(path);
       }},
      {"the path of the remote queue pair does not lead back",
       [](FakeLink& link) {
         FakeNode::Path path = link.b.path_to(link.a);
         REQUIRE(link.b.modify(IBV_QPS_RESET, path, 0) == 0);
         path.attributes.ah_attr.grh.dgid = ipv4_gid(10, 9, 0, 77);
         link.b.connect(path);
       }},
      {"the path does not lead to the remote queue pair",
       [](FakeLink& link) {
         FakeNode::Path path = link.b.path_to(link.a);
         REQUIRE(link.b.modify(IBV_QPS_RESET, path, 0) == 0);
         path.attributes.ah_attr.grh.sgid_index = 2;  // RoCE v1
         link.b.connect(path);
       }},
      {"the remote port is down", [](FakeLink& link) { link.fabric.set_port_state("fake1", IBV_PORT_DOWN); }},
      {"the local port is down", [](FakeLink& link) { link.fabric.set_port_state("fake0", IBV_PORT_DOWN); }},
      {"the remote device is dead", [](FakeLink& link) { link.fabric.kill("fake1"); }},
      {"the link is down", [](FakeLink& link) { link.fabric.set_link("fake1", "fake0", LinkState::kDown); }},
  };
  for (const Case& one : cases) {
    CAPTURE(one.silence);
    FakeFabric fabric;
    FakeLink link(fabric);
    one.change(link);
    REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, 8)}) == 0);
    CHECK(link.a.poll().empty());
    CHECK(fabric.queue_pairs("fake0").at(0).silence == one.silence);
    CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_RETRY_EXC_ERR});
    CHECK(link.bytes_b[0] == std::byte{0});
  }
}

TEST_CASE("a link that comes back in time costs nothing") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.set_link("fake0", "fake1", LinkState::kDown);
  REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, 8)}) == 0);
  fabric.progress(20);
  CHECK(link.a.poll().empty());
  fabric.set_link("fake0", "fake1", LinkState::kUp);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_SUCCESS});
  CHECK(link.arrived(0, 0, 8));
}

TEST_CASE("when answers are lost the message arrives once, and the sender fails") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.set_link("fake0", "fake1", LinkState::kAcksLost);
  for (int i = 0; i < 2; ++i) REQUIRE(link.b.post_receive(1, {link.at_b(0, 8)}) == 0);
  REQUIRE(link.a.post(make_work(1, IBV_WR_SEND), {link.at_a(0, 8)}) == 0);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_RETRY_EXC_ERR});
  CHECK(statuses(link.b.poll()) == Statuses{IBV_WC_SUCCESS});
  CHECK(link.arrived(0, 0, 8));
}

TEST_CASE("a frozen device makes everybody wait without giving up") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.freeze("fake1");
  REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, 8)}) == 0);
  fabric.progress(10'000);
  CHECK(link.a.poll().empty());
  fabric.freeze("fake1", false);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_SUCCESS});
}

// ---- large transfers

TEST_CASE("a large write goes in pieces, and one whose region goes away stops where it is") {
  FakeOptions options = FakeOptions::roce();
  options.step_on_calls = false;
  FakeFabric fabric(options);
  FakeLink link(fabric);
  REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, FakeLink::kBytes)}) == 0);
  REQUIRE(fabric.progress(2));
  const std::uint64_t moved = fabric.counters("fake0").bytes;
  CHECK(moved > 64 * 1024);
  CHECK(moved <= 128 * 1024);
  CHECK(link.arrived(0, 0, moved));
  REQUIRE(link.b.remove_region(link.mr_b) == 0);
  const ByteVector after = link.bytes_b;
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_REM_ACCESS_ERR});
  CHECK(link.bytes_b == after);
  CHECK(after[moved] == std::byte{0});
}

TEST_CASE("a receive that a message has begun to fill is flushed with its queue pair") {
  FakeOptions options = FakeOptions::roce();
  options.step_on_calls = false;
  FakeFabric fabric(options);
  FakeLink link(fabric);
  REQUIRE(link.b.post_receive(3, {link.at_b(0, FakeLink::kBytes)}) == 0);
  REQUIRE(link.a.post(make_work(1, IBV_WR_SEND), {link.at_a(0, FakeLink::kBytes)}) == 0);
  REQUIRE(fabric.progress());
  FakeNode::Path path;
  REQUIRE(link.b.modify(IBV_QPS_ERR, path, 0) == 0);
  const auto got = link.b.poll();
  REQUIRE(statuses(got) == Statuses{IBV_WC_WR_FLUSH_ERR});
  CHECK(got[0].wr_id == 3);
  CHECK(statuses(wait(link.a, fabric)) == Statuses{IBV_WC_RETRY_EXC_ERR});
}

TEST_CASE("requests of one queue pair complete in order, whatever their size") {
  FakeFabric fabric;
  FakeLink link(fabric);
  REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, FakeLink::kBytes)}) == 0);
  REQUIRE(link.a.post(link.write(2, 0), {link.at_a(8, 8)}) == 0);
  std::vector<std::uint64_t> order;
  while (order.size() < 2) {
    for (const ibv_wc& wc : wait(link.a, fabric)) order.push_back(wc.wr_id);
  }
  CHECK(order == std::vector<std::uint64_t>{1, 2});
  CHECK(link.arrived(8, 0, 8));
  CHECK(link.arrived(8, 8, FakeLink::kBytes - 8));
}

}  // namespace
}  // namespace slime::transport::testing
