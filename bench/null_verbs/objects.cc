#include <fcntl.h>
#include <net/if.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "bench/null_verbs/fabric.h"

// verbs.h replaces these names by macros.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

namespace slime::bench::null_verbs {
namespace {

constexpr int kMostEntries = 1 << 20;
constexpr int kMostWork = 1 << 15;

ibv_device* the_device() {
  static ibv_device device = [] {
    ibv_device out{};
    out.node_type = IBV_NODE_CA;
    out.transport_type = IBV_TRANSPORT_IB;
    std::strcpy(out.name, "null0");
    return out;
  }();
  return &device;
}

int make_descriptor() { return ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE); }

// Takes one signal. Blocks unless the descriptor is non-blocking; then returns false without one.
bool take_signal(int fd) {
  std::uint64_t taken = 0;
  return ::read(fd, &taken, sizeof taken) == sizeof taken;
}

std::size_t ring_size(int entries) { return std::bit_ceil(static_cast<unsigned>(entries)); }

std::nullptr_t failed(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

void signal(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
}

}  // namespace slime::bench::null_verbs

using namespace slime::bench::null_verbs;  // NOLINT: the functions below have the library's names

extern "C" {

int ibv_fork_init() { return 0; }
ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_SUCCESS ? "success" : "failed";
}

// ---- devices

ibv_device** ibv_get_device_list(int* count) {
  if (count != nullptr) *count = 1;
  return new ibv_device* [2] { the_device(), nullptr };
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
  auto* context = new Context;
  context->device = device;
  context->async_fd = make_descriptor();
  context->num_comp_vectors = 1;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
  context->ops.post_srq_recv = post_srq_recv;
  context->ops.post_send = post_send;
  return context;
}
int ibv_close_device(ibv_context* context) {
  ::close(context->async_fd);
  delete static_cast<Context*>(context);
  return 0;
}

int ibv_query_device(ibv_context*, ibv_device_attr* out) {
  *out = {};
  out->max_mr_size = std::uint64_t{1} << 40;
  out->page_size_cap = 0xfffff000;
  out->max_qp = out->max_cq = out->max_mr = out->max_pd = out->max_srq = 1 << 16;
  out->max_qp_wr = out->max_srq_wr = kMostWork;
  out->max_sge = out->max_sge_rd = 16;
  out->max_srq_sge = 1;
  out->max_cqe = kMostEntries;
  out->max_qp_rd_atom = out->max_qp_init_rd_atom = 16;
  out->atomic_cap = IBV_ATOMIC_HCA;
  out->max_pkeys = 1;
  out->phys_port_cnt = 1;
  return 0;
}

int ibv_query_port(ibv_context*, std::uint8_t port, _compat_ibv_port_attr* compat) {
  if (port != 1) return EINVAL;
  auto* out = reinterpret_cast<ibv_port_attr*>(compat);  // whose first members it has
  out->state = IBV_PORT_ACTIVE;
  out->max_mtu = out->active_mtu = IBV_MTU_4096;
  out->gid_tbl_len = 1;
  out->max_msg_sz = 1U << 30;
  out->pkey_tbl_len = 1;
  out->active_width = 2;
  out->active_speed = 64;
  out->phys_state = 5;
  out->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

int _ibv_query_gid_ex(ibv_context*, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out,
                      std::uint32_t, std::size_t) {
  if (port != 1) return EINVAL;
  if (index != 0) return ENODATA;
  *out = {};
  constexpr std::uint8_t kAddress[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  std::memcpy(out->gid.raw, kAddress, sizeof kAddress);
  out->port_num = port;
  out->gid_type = IBV_GID_TYPE_ROCE_V2;
  out->ndev_ifindex = ::if_nametoindex("lo");
  return 0;
}

int ibv_get_async_event(ibv_context* handle, ibv_async_event* out) {
  auto* context = static_cast<Context*>(handle);
  for (;;) {
    if (!take_signal(context->async_fd)) return -1;
    const Lock lock;
    if (context->events.empty()) continue;  // its queue pair was destroyed meanwhile
    *out = context->events.front();
    context->events.pop_front();
    return 0;
  }
}
void ibv_ack_async_event(ibv_async_event*) {}

// ---- memory

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  auto* pd = new ibv_pd{};
  pd->context = context;
  return pd;
}
int ibv_dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  auto* memory = new Memory;
  memory->context = pd->context;
  memory->pd = pd;
  memory->addr = address;
  memory->length = bytes;
  memory->access = static_cast<unsigned>(access);
  const Lock lock;
  memory->lkey = memory->rkey = fabric().add(*memory);
  return memory;
}
int ibv_dereg_mr(ibv_mr* handle) {
  auto* memory = static_cast<Memory*>(handle);
  {
    const Lock lock;
    fabric().remove(*memory);
  }
  delete memory;
  return 0;
}

// ---- completions

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  auto* channel = new Channel;
  channel->context = context;
  channel->fd = make_descriptor();
  return channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  ::close(channel->fd);
  delete static_cast<Channel*>(channel);
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel, int) {
  if (entries < 1 || entries > kMostEntries) return failed(EINVAL);
  auto* cq = new CompletionQueue;
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = user;
  cq->cqe = entries;
  cq->ring.resize(ring_size(entries));
  return cq;
}
int ibv_destroy_cq(ibv_cq* handle) {
  auto* cq = static_cast<CompletionQueue*>(handle);
  {
    const Lock lock;
    if (auto* channel = static_cast<Channel*>(cq->channel)) std::erase(channel->events, cq);
  }
  delete cq;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* handle, ibv_cq** cq, void** user) {
  auto* channel = static_cast<Channel*>(handle);
  for (;;) {
    if (!take_signal(channel->fd)) return -1;
    const Lock lock;
    if (channel->events.empty()) continue;  // the completion queue was destroyed meanwhile
    *cq = channel->events.front();
    *user = channel->events.front()->cq_context;
    channel->events.pop_front();
    return 0;
  }
}
void ibv_ack_cq_events(ibv_cq*, unsigned) {}

// ---- queues

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  if (attributes->attr.max_wr > kMostWork || attributes->attr.max_sge > 1) return failed(EINVAL);
  auto* srq = new ReceiveQueue;
  srq->context = pd->context;
  srq->pd = pd;
  srq->ring.resize(ring_size(static_cast<int>(attributes->attr.max_wr)));
  return srq;
}
int ibv_destroy_srq(ibv_srq* srq) {
  delete static_cast<ReceiveQueue*>(srq);
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (attributes->qp_type != IBV_QPT_RC || attributes->srq == nullptr) return failed(EINVAL);
  auto* qp = new QueuePair;
  qp->context = pd->context;
  qp->pd = pd;
  qp->send_cq = attributes->send_cq;
  qp->recv_cq = attributes->recv_cq;
  qp->srq = attributes->srq;
  qp->qp_type = attributes->qp_type;
  qp->state = IBV_QPS_RESET;
  qp->max_inline = attributes->cap.max_inline_data = std::min(attributes->cap.max_inline_data, 256U);
  const Lock lock;
  qp->qp_num = fabric().add(*qp);
  return qp;
}

int ibv_modify_qp(ibv_qp* handle, ibv_qp_attr* attributes, int mask) {
  auto* qp = static_cast<QueuePair*>(handle);
  const Lock lock;
  if ((mask & IBV_QP_DEST_QPN) != 0) qp->peer_number = attributes->dest_qp_num;
  if ((mask & IBV_QP_STATE) == 0) return 0;
  if (attributes->qp_state == IBV_QPS_ERR)
    fabric().fail(*qp);
  else
    qp->state = attributes->qp_state;
  return 0;
}
int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr* init) {
  *attributes = {};
  *init = {};
  attributes->qp_state = qp->state;
  return 0;
}
int ibv_destroy_qp(ibv_qp* handle) {
  auto* qp = static_cast<QueuePair*>(handle);
  {
    const Lock lock;
    fabric().remove(*qp);
  }
  delete qp;
  return 0;
}

}  // extern "C"
