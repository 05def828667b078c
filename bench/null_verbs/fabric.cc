#include "bench/null_verbs/fabric.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace slime::bench::null_verbs {
namespace {

constexpr std::uint64_t kWord = sizeof(std::uint64_t);

std::uint64_t delay_ns() {
  static const std::uint64_t out = [] {
    const char* const text = std::getenv("NULL_VERBS_DELAY_NS");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  }();
  return out;
}

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// The time when a completion of a request that is posted now shows.
std::uint64_t due_now() { return delay_ns() == 0 ? 0 : now_ns() + delay_ns(); }

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
bool has_imm(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

std::byte* at(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): a work request has it
}

// Copies words that are aligned on both sides atomically, as buses do: programs may poll them.
void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const auto places = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (bytes == kWord && places % kWord == 0) {
    const std::uint64_t value =
        __atomic_load_n(reinterpret_cast<const std::uint64_t*>(from), __ATOMIC_ACQUIRE);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), value, __ATOMIC_RELEASE);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void tell(CompletionQueue& cq) {
  cq.armed = false;
  auto& channel = *static_cast<Channel*>(cq.channel);
  channel.events.push_back(&cq);
  signal(channel.fd);
}

void push(ibv_cq* handle, const ibv_wc& wc, std::uint64_t due_ns) {
  auto& cq = *static_cast<CompletionQueue*>(handle);
  const std::uint32_t size = cq.size.load(std::memory_order_relaxed);
  if (size == static_cast<std::uint32_t>(cq.cqe)) {
    std::fputs("null verbs: a completion queue overflowed\n", stderr);
    std::abort();
  }
  cq.ring[(cq.begin + size) & (cq.ring.size() - 1)] = {wc, due_ns};
  cq.size.store(size + 1, std::memory_order_release);
  if (cq.armed) tell(cq);
}

void apply_atomic(const ibv_send_wr& request) {
  auto* word = reinterpret_cast<std::uint64_t*>(at(request.wr.atomic.remote_addr));
  std::uint64_t old = request.wr.atomic.compare_add;
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
    old = __atomic_fetch_add(word, old, __ATOMIC_ACQ_REL);
  else
    __atomic_compare_exchange_n(word, &old, request.wr.atomic.swap, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
  std::memcpy(at(request.sg_list[0].addr), &old, sizeof old);
}

}  // namespace

Fabric& fabric() {
  static Fabric& out = *new Fabric;
  return out;
}

std::uint32_t Fabric::add(Memory& memory) {
  memories_.push_back(&memory);
  return static_cast<std::uint32_t>(memories_.size() - 1);
}
void Fabric::remove(Memory& memory) { memories_[memory.lkey] = nullptr; }

std::uint32_t Fabric::add(QueuePair& qp) {
  queue_pairs_.push_back(&qp);
  return static_cast<std::uint32_t>(queue_pairs_.size() - 1);
}
void Fabric::remove(QueuePair& qp) {
  queue_pairs_[qp.qp_num] = nullptr;
  std::erase_if(static_cast<Context*>(qp.context)->events,
                [&](const ibv_async_event& event) { return event.element.qp == &qp; });
}

void Fabric::fail(QueuePair& qp) {
  if (qp.state == IBV_QPS_ERR) return;
  const bool received = qp.state == IBV_QPS_RTR || qp.state == IBV_QPS_RTS;
  qp.state = IBV_QPS_ERR;
  if (!received) return;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
  event.element.qp = &qp;
  static_cast<Context*>(qp.context)->events.push_back(event);
  signal(qp.context->async_fd);
}

std::byte* Fabric::find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes,
                        unsigned rights) const {
  const Memory* const memory = key < memories_.size() ? memories_[key] : nullptr;
  if (memory == nullptr || (memory->access & rights) != rights) return nullptr;
  const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(memory->addr);
  return offset <= memory->length && bytes <= memory->length - offset ? at(address) : nullptr;
}

// Sums the local pieces of a request. Returns false if one is not memory with these rights.
bool Fabric::sources(const ibv_send_wr& request, unsigned rights, std::uint64_t& bytes) const {
  const bool is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& piece = request.sg_list[i];
    if (!is_inline && find(piece.lkey, piece.addr, piece.length, rights) == nullptr) return false;
    bytes += piece.length;
  }
  return true;
}

void Fabric::carry_out(QueuePair& qp, const ibv_send_wr& request, std::uint64_t due_ns) {
  ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
  if (qp.state == IBV_QPS_RTS) {
    QueuePair* const peer = qp.peer_number < queue_pairs_.size() ? queue_pairs_[qp.peer_number] : nullptr;
    const bool answers = peer != nullptr && peer->peer_number == qp.qp_num &&
                         (peer->state == IBV_QPS_RTR || peer->state == IBV_QPS_RTS);
    status = answers ? execute(*peer, request, due_ns) : IBV_WC_RETRY_EXC_ERR;
  }
  if (status == IBV_WC_SUCCESS && (request.send_flags & IBV_SEND_SIGNALED) == 0) return;
  ibv_wc wc{};
  wc.wr_id = request.wr_id;
  wc.status = status;
  wc.qp_num = qp.qp_num;
  push(qp.send_cq, wc, due_ns);
  if (status != IBV_WC_SUCCESS) fail(qp);
}

ibv_wc_status Fabric::execute(QueuePair& peer, const ibv_send_wr& request, std::uint64_t due_ns) {
  const ibv_wc_status status = reach(peer, request, due_ns);
  if (status == IBV_WC_REM_ACCESS_ERR) fail(peer);
  return status;
}

ibv_wc_status Fabric::reach(QueuePair& peer, const ibv_send_wr& request, std::uint64_t due_ns) {
  const bool fetches = request.opcode == IBV_WR_RDMA_READ || is_atomic(request.opcode);
  std::uint64_t bytes = 0;
  if (!sources(request, fetches ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U, bytes)) return IBV_WC_LOC_PROT_ERR;
  if (request.opcode == IBV_WR_SEND || request.opcode == IBV_WR_SEND_WITH_IMM)
    return receive(peer, request, bytes, due_ns);
  if (is_atomic(request.opcode)) {
    const auto& atomic = request.wr.atomic;
    if (find(atomic.rkey, atomic.remote_addr, kWord, IBV_ACCESS_REMOTE_ATOMIC) == nullptr)
      return IBV_WC_REM_ACCESS_ERR;
    if (atomic.remote_addr % kWord != 0) return IBV_WC_REM_INV_REQ_ERR;
    apply_atomic(request);
    return IBV_WC_SUCCESS;
  }
  const unsigned rights = fetches ? unsigned{IBV_ACCESS_REMOTE_READ} : unsigned{IBV_ACCESS_REMOTE_WRITE};
  std::byte* remote = nullptr;
  if (bytes > 0) {
    remote = find(request.wr.rdma.rkey, request.wr.rdma.remote_addr, bytes, rights);
    if (remote == nullptr) return IBV_WC_REM_ACCESS_ERR;
  }
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& piece = request.sg_list[i];
    if (fetches)
      copy_bytes(at(piece.addr), remote, piece.length);
    else
      copy_bytes(remote, at(piece.addr), piece.length);
    remote += piece.length;
  }
  if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) return receive(peer, request, bytes, due_ns);
  return IBV_WC_SUCCESS;
}

// Uses up one receive of the peer: for the bytes of a message, or for the immediate of a write.
ibv_wc_status Fabric::receive(QueuePair& peer, const ibv_send_wr& request, std::uint64_t bytes,
                              std::uint64_t due_ns) {
  auto& srq = *static_cast<ReceiveQueue*>(peer.srq);
  if (srq.size == 0) return IBV_WC_RNR_RETRY_EXC_ERR;
  const Receive receive = srq.ring[srq.begin];
  const bool is_write = request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (!is_write && bytes > receive.place.length) return IBV_WC_REM_INV_REQ_ERR;
  std::byte* to = at(receive.place.addr);
  for (int i = 0; !is_write && i < request.num_sge; ++i) {
    copy_bytes(to, at(request.sg_list[i].addr), request.sg_list[i].length);
    to += request.sg_list[i].length;
  }
  srq.begin = (srq.begin + 1) & (srq.ring.size() - 1);
  --srq.size;
  ibv_wc wc{};
  wc.wr_id = receive.id;
  wc.opcode = is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = static_cast<std::uint32_t>(bytes);
  wc.qp_num = peer.qp_num;
  if (has_imm(request.opcode)) {
    wc.imm_data = request.imm_data;
    wc.wc_flags = IBV_WC_WITH_IMM;
  }
  push(peer.recv_cq, wc, due_ns);
  return IBV_WC_SUCCESS;
}

int poll_cq(ibv_cq* handle, int count, ibv_wc* out) {
  auto& cq = *static_cast<CompletionQueue*>(handle);
  if (cq.size.load(std::memory_order_acquire) == 0) return 0;
  const std::uint64_t now = delay_ns() == 0 ? 0 : now_ns();
  const Lock lock;
  std::uint32_t size = cq.size.load(std::memory_order_relaxed);
  int got = 0;
  for (; got < count && size > 0; ++got, --size) {
    const Entry& entry = cq.ring[cq.begin];
    if (entry.due_ns > now) break;
    out[got] = entry.wc;
    cq.begin = (cq.begin + 1) & (cq.ring.size() - 1);
  }
  cq.size.store(size, std::memory_order_release);
  return got;
}

int req_notify_cq(ibv_cq* handle, int) {
  auto& cq = *static_cast<CompletionQueue*>(handle);
  const Lock lock;
  cq.armed = true;
  // Nothing tells when an entry that is delayed shows, so its reader stays awake.
  if (delay_ns() != 0 && cq.size.load(std::memory_order_relaxed) > 0) tell(cq);
  return 0;
}

int post_srq_recv(ibv_srq* handle, ibv_recv_wr* first, ibv_recv_wr** bad) {
  auto& srq = *static_cast<ReceiveQueue*>(handle);
  const Lock lock;
  for (ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next) {
    if (srq.size == srq.ring.size() || wr->num_sge != 1) {
      *bad = wr;
      return srq.size == srq.ring.size() ? ENOMEM : EINVAL;
    }
    srq.ring[(srq.begin + srq.size++) & (srq.ring.size() - 1)] = {wr->wr_id, wr->sg_list[0]};
  }
  return 0;
}

int post_send(ibv_qp* handle, ibv_send_wr* first, ibv_send_wr** bad) {
  auto& qp = *static_cast<QueuePair*>(handle);
  const std::uint64_t due = due_now();
  const Lock lock;
  if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_ERR) {
    *bad = first;
    return EINVAL;
  }
  for (const ibv_send_wr* wr = first; wr != nullptr; wr = wr->next) fabric().carry_out(qp, *wr, due);
  return 0;
}

}  // namespace slime::bench::null_verbs
