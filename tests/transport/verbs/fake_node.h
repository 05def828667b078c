#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/transport/verbs/fake_fabric.h"

namespace slime::transport::testing {

// One user of the fabric's table, like a program: a device with all objects that a connection
// needs.
class FakeNode {
 public:
  struct Sizes {
    int cq_entries = 64;
    std::uint32_t receives = 16;
    std::uint32_t sends = 16;
    std::uint32_t send_sge = 4;
    std::uint32_t inline_bytes = 64;
  };

  FakeNode(const verbs::Functions& functions, int device) : FakeNode(functions, device, Sizes{}) {}
  FakeNode(const verbs::Functions& functions, int device, Sizes sizes) : f(functions) {
    ibv_device** list = f.get_device_list(nullptr);
    context = f.open_device(list[device]);
    f.free_device_list(list);
    REQUIRE(context != nullptr);
    pd = f.alloc_pd(context);
    channel = f.create_comp_channel(context);
    cq = f.create_cq(context, sizes.cq_entries, this, channel, 0);
    ibv_srq_init_attr wanted{};
    wanted.attr = {.max_wr = sizes.receives, .max_sge = 2, .srq_limit = 0};
    srq = f.create_srq(pd, &wanted);
    REQUIRE(srq != nullptr);
    for (const int fd : {channel->fd, context->async_fd}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    qp = make_qp(sizes);
  }
  ~FakeNode() {
    ibv_async_event event;
    while (f.get_async_event(context, &event) == 0) f.ack_async_event(&event);
    if (qp != nullptr) CHECK(f.destroy_qp(qp) == 0);
    for (ibv_mr* mr : regions) CHECK(f.dereg_mr(mr) == 0);
    CHECK(f.destroy_srq(srq) == 0);
    CHECK(f.destroy_cq(cq) == 0);
    CHECK(f.destroy_comp_channel(channel) == 0);
    CHECK(f.dealloc_pd(pd) == 0);
    CHECK(f.close_device(context) == 0);
  }
  FakeNode(const FakeNode&) = delete;
  FakeNode& operator=(const FakeNode&) = delete;

  ibv_qp* make_qp() { return make_qp(Sizes{}); }
  ibv_qp* make_qp(Sizes sizes) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.srq = srq;
    wanted.cap.max_send_wr = sizes.sends;
    wanted.cap.max_send_sge = sizes.send_sge;
    wanted.cap.max_inline_data = sizes.inline_bytes;
    wanted.qp_type = IBV_QPT_RC;
    ibv_qp* made = f.create_qp(pd, &wanted);
    REQUIRE(made != nullptr);
    return made;
  }

  // The parameters from RESET to RTS, which tests may change before they connect.
  struct Path {
    ibv_qp_attr attributes{};
    Path() {
      attributes.qp_access_flags =
          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
      attributes.port_num = 1;
      attributes.path_mtu = IBV_MTU_1024;
      attributes.rq_psn = attributes.sq_psn = 7;
      attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4;
      attributes.min_rnr_timer = 12;
      attributes.timeout = 14;
      attributes.retry_cnt = 7;
      attributes.rnr_retry = 6;
      attributes.ah_attr.is_global = 1;
      attributes.ah_attr.port_num = 1;
      attributes.ah_attr.grh.sgid_index = 3;
      attributes.ah_attr.grh.hop_limit = 64;
    }
  };
  int modify(ibv_qp_state state, Path& path, int mask) {
    path.attributes.qp_state = state;
    return f.modify_qp(qp, &path.attributes, mask | IBV_QP_STATE);
  }
  int to_init(Path& path) { return modify(IBV_QPS_INIT, path, kInit); }
  int to_rtr(Path& path) { return modify(IBV_QPS_RTR, path, kRtr); }
  int to_rts(Path& path) { return modify(IBV_QPS_RTS, path, kRts); }
  static constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  static constexpr int kRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  static constexpr int kRts =
      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

  // Returns the path to the peer, on a fabric of FakeOptions::roce().
  Path path_to(const FakeNode& peer) const {
    Path path;
    ibv_gid_entry entry{};
    REQUIRE(f.query_gid(peer.context, 1, 3, &entry) == 0);
    path.attributes.ah_attr.grh.dgid = entry.gid;
    path.attributes.dest_qp_num = peer.qp->qp_num;
    return path;
  }
  void connect(Path path) {
    REQUIRE(to_init(path) == 0);
    REQUIRE(to_rtr(path) == 0);
    REQUIRE(to_rts(path) == 0);
  }

  ibv_mr* add_region(MutableBytes bytes, int access) {
    ibv_mr* mr = f.reg_mr(pd, bytes.data(), bytes.size(), access);
    if (mr != nullptr) regions.push_back(mr);
    return mr;
  }
  int remove_region(ibv_mr* mr) {
    std::erase(regions, mr);
    return f.dereg_mr(mr);
  }
  int post_receive(std::uint64_t id, std::vector<ibv_sge> sges) {
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    ibv_recv_wr* bad = nullptr;
    return f.post_srq_recv(srq, &wr, &bad);
  }
  int post(ibv_send_wr wr, std::vector<ibv_sge> sges) {
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    ibv_send_wr* bad = nullptr;
    return f.post_send(qp, &wr, &bad);
  }
  std::vector<ibv_wc> poll() {
    std::vector<ibv_wc> out(64);
    const int got = f.poll_cq(cq, static_cast<int>(out.size()), out.data());
    out.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return out;
  }
  std::vector<ibv_event_type> take_events() {
    std::vector<ibv_event_type> out;
    ibv_async_event event;
    while (f.get_async_event(context, &event) == 0) {
      out.push_back(event.event_type);
      f.ack_async_event(&event);
    }
    return out;
  }
  static bool readable(int fd) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) == 1;
  }

  const verbs::Functions& f;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  std::vector<ibv_mr*> regions;
};

inline ibv_sge sge_of(MutableBytes bytes, const ibv_mr* mr) {
  return {.addr = reinterpret_cast<std::uintptr_t>(bytes.data()),
          .length = static_cast<std::uint32_t>(bytes.size()),
          .lkey = mr->lkey};
}
inline ibv_send_wr make_work(std::uint64_t id, ibv_wr_opcode opcode, unsigned flags = IBV_SEND_SIGNALED) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = opcode;
  wr.send_flags = flags;
  return wr;
}
inline ibv_send_wr make_work(std::uint64_t id, ibv_wr_opcode opcode, const void* remote, std::uint32_t rkey,
                             unsigned flags = IBV_SEND_SIGNALED) {
  ibv_send_wr wr = make_work(id, opcode, flags);
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(remote);
  wr.wr.rdma.rkey = rkey;
  return wr;
}

using Statuses = std::vector<ibv_wc_status>;
inline Statuses statuses(const std::vector<ibv_wc>& completions) {
  Statuses out;
  for (const ibv_wc& wc : completions) out.push_back(wc.status);
  return out;
}

// Two connected nodes on fake0 and fake1, each with a region of 256 KiB that the other node may
// access.
struct FakeLink {
  static constexpr std::size_t kBytes = 256 * 1024;
  static constexpr int kAll =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  explicit FakeLink(FakeFabric& used) : FakeLink(used, FakeNode::Sizes{}) {}
  FakeLink(FakeFabric& used, FakeNode::Sizes sizes)
      : fabric(used), a(used.functions(), 0, sizes), b(used.functions(), 1, sizes) {
    a.connect(a.path_to(b));
    b.connect(b.path_to(a));
    mr_a = a.add_region(bytes_a, kAll);
    mr_b = b.add_region(bytes_b, kAll);
    for (std::size_t i = 0; i < kBytes; ++i) bytes_a[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  // A piece of a side's region.
  [[nodiscard]] ibv_sge at_a(std::size_t offset, std::size_t length) {
    return sge_of(MutableBytes(bytes_a).subspan(offset, length), mr_a);
  }
  [[nodiscard]] ibv_sge at_b(std::size_t offset, std::size_t length) {
    return sge_of(MutableBytes(bytes_b).subspan(offset, length), mr_b);
  }
  [[nodiscard]] ibv_send_wr write(std::uint64_t id, std::size_t remote_offset,
                                  unsigned flags = IBV_SEND_SIGNALED) {
    return make_work(id, IBV_WR_RDMA_WRITE, bytes_b.data() + remote_offset, mr_b->rkey, flags);
  }
  // Returns whether b's bytes at `to` equal a's bytes at `from`.
  [[nodiscard]] bool arrived(std::size_t from, std::size_t to, std::size_t length) {
    return std::memcmp(bytes_a.data() + from, bytes_b.data() + to, length) == 0;
  }

  FakeFabric& fabric;
  ByteVector bytes_a = ByteVector(kBytes);
  ByteVector bytes_b = ByteVector(kBytes);
  FakeNode a;
  FakeNode b;
  ibv_mr* mr_a = nullptr;
  ibv_mr* mr_b = nullptr;
};

}  // namespace slime::transport::testing
