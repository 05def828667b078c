#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "tests/transport/verbs/fake_node.h"

// The fake fabric's objects: devices, memory, lifetimes, the states of a queue pair.
namespace slime::transport::testing {
namespace {

using Misuses = std::vector<std::string>;

// ---- devices

TEST_CASE("devices, ports and GIDs are listed as they were set up") {
  FakeOptions options = FakeOptions::roce(3);
  options.devices[1].ports.push_back(options.devices[1].ports[0]);
  FakeFabric fabric(options);
  const verbs::Functions& f = fabric.functions();
  int count = 0;
  ibv_device** list = f.get_device_list(&count);
  REQUIRE(count == 3);
  CHECK(list[3] == nullptr);
  CHECK(std::string(f.get_device_name(list[1])) == "fake1");
  ibv_context* context = f.open_device(list[1]);
  f.free_device_list(list);
  REQUIRE(context != nullptr);
  ibv_device_attr device{};
  CHECK(f.query_device(context, &device) == 0);
  CHECK(device.phys_port_cnt == 2);
  ibv_port_attr port{};
  CHECK(f.query_port(context, 2, &port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE);
  CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
  CHECK(port.gid_tbl_len == 6);
  CHECK(f.query_port(context, 3, &port) == EINVAL);
  ibv_gid_entry gid{};
  CHECK(f.query_gid(context, 1, 3, &gid) == 0);
  CHECK(gid.gid_type == IBV_GID_TYPE_ROCE_V2);
  CHECK(gid.gid.raw[15] == 2);
  CHECK(f.query_gid(context, 1, 4, &gid) == ENODATA);
  CHECK(f.query_gid(context, 1, 6, &gid) == EINVAL);
  CHECK(f.close_device(context) == 0);
}

TEST_CASE("an event of a port reaches every context of its device, once") {
  FakeFabric fabric;
  FakeNode one(fabric.functions(), 0);
  FakeNode two(fabric.functions(), 0);
  FakeNode other(fabric.functions(), 1);
  fabric.set_port_state("fake0", IBV_PORT_DOWN);
  CHECK(FakeNode::readable(one.context->async_fd));
  CHECK_FALSE(FakeNode::readable(other.context->async_fd));
  using Events = std::vector<ibv_event_type>;
  CHECK(one.take_events() == Events{IBV_EVENT_PORT_ERR});
  CHECK(two.take_events() == Events{IBV_EVENT_PORT_ERR});
  CHECK_FALSE(FakeNode::readable(one.context->async_fd));
  fabric.set_port_state("fake0", IBV_PORT_ACTIVE);
  fabric.set_gids("fake0", {{ipv4_gid(10, 9, 0, 9), IBV_GID_TYPE_ROCE_V2, 1}});
  fabric.raise("fake0", IBV_EVENT_CLIENT_REREGISTER);
  CHECK(one.take_events() ==
        Events{IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE, IBV_EVENT_CLIENT_REREGISTER});
  ibv_gid_entry gid{};
  CHECK(one.f.query_gid(one.context, 1, 0, &gid) == 0);
  CHECK(gid.gid.raw[15] == 9);
}

TEST_CASE("a peer that changed its GID is not found under the old one") {
  FakeFabric fabric;
  FakeLink link(fabric);
  fabric.set_gids("fake1", {{ipv4_gid(10, 9, 0, 9), IBV_GID_TYPE_ROCE_V2, 1}});
  REQUIRE(link.a.post(link.write(1, 0), {link.at_a(0, 8)}) == 0);
  fabric.progress(1000);
  CHECK(statuses(link.a.poll()) == Statuses{IBV_WC_RETRY_EXC_ERR});
}

// ---- memory

TEST_CASE("what pinning refuses is refused") {
  FakeOptions options = FakeOptions::roce();
  options.devices[0].attributes.max_mr_size = 8192;
  options.memlock_bytes = 10'000;
  FakeFabric fabric(options);
  FakeNode node(fabric.functions(), 0);
  ByteVector bytes(32'768);
  const auto error_of = [&](std::size_t size, int access) {
    errno = 0;
    return node.add_region(MutableBytes(bytes).first(size), access) == nullptr ? errno : 0;
  };
  CHECK(error_of(8193, 0) == EINVAL);
  CHECK(error_of(0, 0) == EINVAL);
  CHECK(error_of(64, IBV_ACCESS_REMOTE_WRITE) == EINVAL);      // needs local write
  CHECK(error_of(64, IBV_ACCESS_RELAXED_ORDERING) == EINVAL);  // only reg_mr_iova2 accepts it
  CHECK(error_of(8192, 0) == 0);
  CHECK(error_of(4096, 0) == ENOMEM);
  CHECK(fabric.objects().regions == 1);
  CHECK(node.remove_region(node.regions[0]) == 0);
  CHECK(error_of(4096, 0) == 0);
  void* nowhere = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(::munmap(nowhere, 4096) == 0);
  CHECK(node.add_region({static_cast<std::byte*>(nowhere), 4096}, 0) == nullptr);
  CHECK(errno == EFAULT);
}

TEST_CASE("keys differ between local and remote, and are never given twice") {
  FakeFabric fabric;
  FakeNode node(fabric.functions(), 0);
  ByteVector bytes(64);
  std::vector<std::uint32_t> seen;
  for (int i = 0; i < 200; ++i) {
    ibv_mr* mr = node.add_region(bytes, 0);
    for (const std::uint32_t key : {mr->lkey, mr->rkey}) {
      CHECK(std::find(seen.begin(), seen.end(), key) == seen.end());
      seen.push_back(key);
    }
    node.remove_region(mr);
  }
}

TEST_CASE("a region with addresses of its own is used under them, on both sides") {
  FakeFabric fabric;
  FakeLink link(fabric);
  const std::uint64_t iova = 0x10'0000'0000;
  ibv_mr* mine = link.a.f.reg_mr_iova2(link.a.pd, link.bytes_a.data(), 4096, iova,
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  ibv_mr* theirs = link.b.f.reg_mr_iova2(link.b.pd, link.bytes_b.data(), 4096, iova,
                                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE(mine != nullptr);
  REQUIRE(theirs != nullptr);
  link.a.regions.push_back(mine);
  link.b.regions.push_back(theirs);
  ibv_send_wr wr = make_work(1, IBV_WR_RDMA_WRITE);
  wr.wr.rdma.remote_addr = iova + 32;
  wr.wr.rdma.rkey = theirs->rkey;
  REQUIRE(link.a.post(wr, {{.addr = iova + 8, .length = 100, .lkey = mine->lkey}}) == 0);
  CHECK(statuses(link.a.poll()) == Statuses{IBV_WC_SUCCESS});
  CHECK(link.arrived(8, 32, 100));
}

TEST_CASE("device memory is registered by its descriptor") {
  FakeFabric fabric;
  FakeLink link(fabric);
  const FakeFabric::Dmabuf memory = fabric.make_dmabuf(8192);
  ibv_mr* mr = link.b.f.reg_dmabuf_mr(link.b.pd, 4096, 4096, 0x1000, memory.fd,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE(mr != nullptr);
  link.b.regions.push_back(mr);
  CHECK(link.b.f.reg_dmabuf_mr(link.b.pd, 4096, 4097, 0, memory.fd, 0) == nullptr);
  CHECK(errno == EINVAL);
  ::close(memory.fd);
  CHECK(link.b.f.reg_dmabuf_mr(link.b.pd, 0, 4096, 0, memory.fd, 0) == nullptr);
  CHECK(errno == EBADF);
  ibv_send_wr wr = make_work(1, IBV_WR_RDMA_WRITE);
  wr.wr.rdma.remote_addr = 0x1000 + 10;
  wr.wr.rdma.rkey = mr->rkey;
  REQUIRE(link.a.post(wr, {link.at_a(0, 16)}) == 0);
  CHECK(statuses(link.a.poll()) == Statuses{IBV_WC_SUCCESS});
  CHECK(std::memcmp(memory.bytes.data() + 4096 + 10, link.bytes_a.data(), 16) == 0);
}

// ---- lifetimes

TEST_CASE("what is in use cannot be destroyed, and what was destroyed cannot be used") {
  FakeFabric fabric;
  {
    FakeNode node(fabric.functions(), 0);
    ByteVector bytes(64);
    ibv_mr* mr = node.add_region(bytes, 0);
    CHECK(node.f.close_device(node.context) == EBUSY);
    CHECK(node.f.dealloc_pd(node.pd) == EBUSY);
    CHECK(node.f.destroy_comp_channel(node.channel) == EBUSY);
    CHECK(node.f.destroy_cq(node.cq) == EBUSY);
    CHECK(node.f.destroy_srq(node.srq) == EBUSY);
    CHECK(fabric.objects() == FakeObjects{1, 1, 1, 1, 1, 1, 1});
    CHECK(node.remove_region(mr) == 0);
    CHECK(fabric.take_misuses().empty());
    CHECK(node.f.dereg_mr(mr) == EINVAL);
    CHECK(fabric.take_misuses() == Misuses{"dereg_mr: the handle was destroyed before"});
  }
  CHECK(fabric.objects() == FakeObjects{});
}

TEST_CASE("events that were not acknowledged would block the destruction of their queue") {
  FakeFabric fabric;
  FakeLink link(fabric);
  ibv_qp* lone = link.a.make_qp();
  const verbs::Functions& f = link.a.f;
  FakeNode::Path path = link.a.path_to(link.b);
  std::swap(link.a.qp, lone);
  REQUIRE(link.a.to_init(path) == 0);
  REQUIRE(link.a.modify(IBV_QPS_ERR, path, 0) == 0);
  std::swap(link.a.qp, lone);
  ibv_async_event event;
  REQUIRE(f.get_async_event(link.a.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
  CHECK(event.element.qp == lone);
  CHECK(f.destroy_qp(lone) == 0);
  CHECK(fabric.take_misuses() ==
        Misuses{"destroy_qp would wait for ever: events of it were not acknowledged"});
}

TEST_CASE("limits of the device are kept") {
  FakeOptions options = FakeOptions::roce();
  options.devices[0].attributes.max_qp = 2;
  options.devices[0].attributes.max_cqe = 100;
  options.devices[0].attributes.max_srq_wr = 50;
  FakeFabric fabric(options);
  FakeNode node(fabric.functions(), 0);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = node.cq;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {
      .max_send_wr = 1, .max_recv_wr = 0, .max_send_sge = 1, .max_recv_sge = 0, .max_inline_data = 0};
  const auto error_of = [&](ibv_qp_init_attr attributes) {
    ibv_qp* made = node.f.create_qp(node.pd, &attributes);
    if (made == nullptr) return errno;
    node.f.destroy_qp(made);
    return 0;
  };
  ibv_qp_init_attr changed = wanted;
  CHECK(error_of(changed) == 0);
  changed.cap.max_inline_data = 257;
  CHECK(error_of(changed) == EINVAL);
  changed = wanted;
  changed.cap.max_send_wr = 16385;
  CHECK(error_of(changed) == EINVAL);
  changed = wanted;
  changed.cap.max_send_sge = 17;
  CHECK(error_of(changed) == EINVAL);
  changed = wanted;
  changed.qp_type = IBV_QPT_UD;
  CHECK(error_of(changed) == EINVAL);
  ibv_qp* second = node.make_qp();
  CHECK(error_of(wanted) == ENOMEM);
  node.f.destroy_qp(second);
  CHECK(node.f.create_cq(node.context, 101, nullptr, nullptr, 0) == nullptr);
  CHECK(errno == EINVAL);
  ibv_srq_init_attr srq{};
  srq.attr = {.max_wr = 51, .max_sge = 1, .srq_limit = 0};
  CHECK(node.f.create_srq(node.pd, &srq) == nullptr);
  CHECK(errno == EINVAL);
}

// ---- states of a queue pair

TEST_CASE("every attribute that a state needs must be given") {
  FakeFabric fabric;
  FakeNode node(fabric.functions(), 0);
  FakeNode peer(fabric.functions(), 1);
  FakeNode::Path path = node.path_to(peer);
  const auto check_bits = [&](ibv_qp_state state, int mask) {
    for (int bit = 1; bit <= mask; bit <<= 1) {
      CAPTURE(bit);
      if ((mask & bit) != 0) CHECK(node.modify(state, path, mask & ~bit) == EINVAL);
    }
    CHECK(node.modify(state, path, mask | IBV_QP_QKEY) == EINVAL);
  };
  CHECK(node.to_rtr(path) == EINVAL);
  CHECK(node.to_rts(path) == EINVAL);
  check_bits(IBV_QPS_INIT, FakeNode::kInit);
  REQUIRE(node.to_init(path) == 0);
  CHECK(node.to_rts(path) == EINVAL);
  check_bits(IBV_QPS_RTR, FakeNode::kRtr);
  REQUIRE(node.to_rtr(path) == 0);
  check_bits(IBV_QPS_RTS, FakeNode::kRts);
  CHECK(node.post(make_work(1, IBV_WR_RDMA_WRITE), {}) == EINVAL);  // not ready to send
  REQUIRE(node.to_rts(path) == 0);
  CHECK(node.post(make_work(1, IBV_WR_RDMA_WRITE), {}) == 0);
  REQUIRE(node.modify(IBV_QPS_RESET, path, 0) == 0);
  CHECK(node.post(make_work(1, IBV_WR_RDMA_WRITE), {}) == EINVAL);
}

TEST_CASE("values out of their range are refused") {
  struct Case {
    const char* what;
    void (*change)(ibv_qp_attr& attributes);
  };
  const Case cases[] = {
      {"port", [](ibv_qp_attr& a) { a.port_num = 2; }},
      {"pkey", [](ibv_qp_attr& a) { a.pkey_index = 1; }},
      {"mtu", [](ibv_qp_attr& a) { a.path_mtu = IBV_MTU_2048; }},
      {"psn", [](ibv_qp_attr& a) { a.rq_psn = 1U << 24; }},
      {"peer", [](ibv_qp_attr& a) { a.dest_qp_num = 1U << 24; }},
      {"reads", [](ibv_qp_attr& a) { a.max_dest_rd_atomic = 17; }},
      {"rnr timer", [](ibv_qp_attr& a) { a.min_rnr_timer = 32; }},
      {"no global route", [](ibv_qp_attr& a) { a.ah_attr.is_global = 0; }},
      {"empty GID", [](ibv_qp_attr& a) { a.ah_attr.grh.sgid_index = 4; }},
      {"GID index", [](ibv_qp_attr& a) { a.ah_attr.grh.sgid_index = 6; }},
      {"no destination", [](ibv_qp_attr& a) { a.ah_attr.grh.dgid = {}; }},
      {"port of the path", [](ibv_qp_attr& a) { a.ah_attr.port_num = 0; }},
      {"service level", [](ibv_qp_attr& a) { a.ah_attr.sl = 16; }},
      {"timeout", [](ibv_qp_attr& a) { a.timeout = 32; }},
      {"retries", [](ibv_qp_attr& a) { a.retry_cnt = 8; }},
      {"rnr retries", [](ibv_qp_attr& a) { a.rnr_retry = 8; }},
      {"first psn", [](ibv_qp_attr& a) { a.sq_psn = 1U << 24; }},
      {"own reads", [](ibv_qp_attr& a) { a.max_rd_atomic = 17; }},
  };
  for (const Case& one : cases) {
    CAPTURE(one.what);
    FakeFabric fabric;
    FakeNode node(fabric.functions(), 0);
    FakeNode peer(fabric.functions(), 1);
    FakeNode::Path path = node.path_to(peer);
    one.change(path.attributes);
    const bool refused = node.to_init(path) != 0 || node.to_rtr(path) != 0 || node.to_rts(path) != 0;
    CHECK(refused);
  }
}

TEST_CASE("a queue pair says what it was given") {
  FakeFabric fabric;
  FakeLink link(fabric);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  REQUIRE(link.a.f.query_qp(link.a.qp, &attributes, IBV_QP_STATE, &init) == 0);
  CHECK(attributes.qp_state == IBV_QPS_RTS);
  CHECK(attributes.dest_qp_num == link.b.qp->qp_num);
  CHECK(attributes.path_mtu == IBV_MTU_1024);
  CHECK(attributes.ah_attr.grh.hop_limit == 64);
  CHECK(attributes.cap.max_send_wr == 16);
  CHECK(init.srq == link.a.srq);
}

TEST_CASE("more reads than the peer takes are a misuse") {
  FakeFabric fabric;
  FakeNode a(fabric.functions(), 0);
  FakeNode b(fabric.functions(), 1);
  FakeNode::Path path = a.path_to(b);
  path.attributes.max_rd_atomic = 5;
  a.connect(path);
  b.connect(b.path_to(a));
  ByteVector bytes(8);
  ibv_mr* mr = a.add_region(bytes, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(a.post(make_work(1, IBV_WR_RDMA_READ), {sge_of(bytes, mr)}) == 0);
  CHECK(statuses(a.poll()) == Statuses{IBV_WC_REM_INV_REQ_ERR});
  CHECK(fabric.take_misuses() == Misuses{"max_rd_atomic is larger than the peer's max_dest_rd_atomic"});
}

TEST_CASE("the first packet at a queue pair that is only ready to receive establishes it") {
  FakeFabric fabric;
  FakeNode a(fabric.functions(), 0);
  FakeNode b(fabric.functions(), 1);
  a.connect(a.path_to(b));
  FakeNode::Path path = b.path_to(a);
  REQUIRE(b.to_init(path) == 0);
  REQUIRE(b.to_rtr(path) == 0);
  REQUIRE(a.post(make_work(1, IBV_WR_RDMA_WRITE), {}) == 0);
  CHECK(statuses(a.poll()) == Statuses{IBV_WC_SUCCESS});
  CHECK(b.take_events() == std::vector<ibv_event_type>{IBV_EVENT_COMM_EST});
}

TEST_CASE("on InfiniBand the LID leads to the peer, with or without a global route") {
  for (const bool global : {false, true}) {
    CAPTURE(global);
    FakeFabric fabric(FakeOptions::infiniband());
    FakeNode a(fabric.functions(), 0);
    FakeNode b(fabric.functions(), 1);
    const auto path_to = [&](const FakeNode& from, const FakeNode& to) {
      FakeNode::Path path;
      ibv_port_attr port{};
      REQUIRE(from.f.query_port(to.context, 1, &port) == 0);
      ibv_gid_entry gid{};
      REQUIRE(from.f.query_gid(to.context, 1, 0, &gid) == 0);
      path.attributes.dest_qp_num = to.qp->qp_num;
      path.attributes.ah_attr.dlid = port.lid;
      path.attributes.ah_attr.is_global = global ? 1 : 0;
      path.attributes.ah_attr.grh.dgid = gid.gid;
      path.attributes.ah_attr.grh.sgid_index = 0;
      return path;
    };
    FakeNode::Path wrong = path_to(a, b);
    wrong.attributes.ah_attr.dlid = 1;  // our own
    b.connect(path_to(b, a));
    a.connect(wrong);
    REQUIRE(a.post(make_work(1, IBV_WR_RDMA_WRITE), {}) == 0);
    fabric.progress(1000);
    CHECK(statuses(a.poll()) == Statuses{IBV_WC_RETRY_EXC_ERR});
    REQUIRE(a.modify(IBV_QPS_RESET, wrong, 0) == 0);
    a.connect(path_to(a, b));
    REQUIRE(a.post(make_work(2, IBV_WR_RDMA_WRITE), {}) == 0);
    CHECK(statuses(a.poll()) == Statuses{IBV_WC_SUCCESS});
  }
}

}  // namespace
}  // namespace slime::transport::testing
