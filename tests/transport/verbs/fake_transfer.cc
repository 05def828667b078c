#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/transport/verbs/fake_objects.h"

// The engine: executes posted work requests.
namespace slime::transport::testing::fake {
namespace {

constexpr std::size_t kPacketCost = 256;  // cost of a work request within a step, besides its bytes

std::uint64_t mtu_bytes(ibv_mtu mtu) { return 128U << static_cast<unsigned>(mtu); }

Outcome failed_with(ibv_wc_status status) { return {Outcome::kFailed, status}; }

// Copies words that are aligned on both sides atomically, as buses do: programs may poll such
// words.
template <class Word>
bool copy_word(std::byte* to, const std::byte* from, std::uint64_t length) {
  const auto aligned = [](const std::byte* p) {
    return reinterpret_cast<std::uintptr_t>(p) % sizeof(Word) == 0;
  };
  if (length != sizeof(Word) || !aligned(to) || !aligned(from)) return false;
  const Word value = __atomic_load_n(reinterpret_cast<const Word*>(from), __ATOMIC_ACQUIRE);
  __atomic_store_n(reinterpret_cast<Word*>(to), value, __ATOMIC_RELEASE);
  return true;
}

// Copies as many bytes as both sides have.
std::uint64_t copy(const Segments& from, const Segments& to) {
  std::uint64_t moved = 0;
  std::size_t i = 0;
  std::size_t j = 0;
  std::uint64_t used_i = 0;
  std::uint64_t used_j = 0;
  while (i < from.size() && j < to.size()) {
    const std::uint64_t length = std::min(from[i].size() - used_i, to[j].size() - used_j);
    std::byte* target = to[j].data() + used_j;
    const std::byte* origin = from[i].data() + used_i;
    if (!copy_word<std::uint64_t>(target, origin, length) &&
        !copy_word<std::uint32_t>(target, origin, length)) {
      std::memmove(target, origin, length);
    }
    moved += length;
    used_i += length;
    used_j += length;
    if (used_i == from[i].size()) ++i, used_i = 0;
    if (used_j == to[j].size()) ++j, used_j = 0;
  }
  return moved;
}

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

// In an unsuccessful completion only wr_id, status, qp_num and vendor_err are valid: the other
// fields get wrong values.
ibv_wc completion(const QueuePair& qp, std::uint64_t wr_id, ibv_wc_status status) {
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.status = status;
  wc.qp_num = qp.qp_num;
  if (status == IBV_WC_SUCCESS) return wc;
  wc.vendor_err = 0x50U + static_cast<unsigned>(status);
  wc.opcode = IBV_WC_BIND_MW;
  wc.byte_len = 0xdeadbeef;
  wc.imm_data = 0xdeadbeef;
  return wc;
}

}  // namespace

// ---- completions

void Fabric::complete_send(QueuePair& qp, const Work& work, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS && !work.signaled) return;
  Entry entry;
  entry.wc = completion(qp, work.wr.wr_id, status);
  if (status == IBV_WC_SUCCESS) {
    entry.wc.opcode = completion_opcode(work.wr.opcode);
    if (fetches(work.wr.opcode)) entry.wc.byte_len = static_cast<std::uint32_t>(work.length);
  }
  entry.qp = &qp;
  entry.frees = work.sequence + 1;
  push(*static_cast<CompletionQueue*>(qp.send_cq), entry);
}

void Fabric::complete_receive(QueuePair& qp, const Receive& receive, ibv_wc_status status, const Work* work) {
  Entry entry;
  entry.wc = completion(qp, receive.wr_id, status);
  if (status == IBV_WC_SUCCESS) {
    entry.wc.opcode = is_send(work->wr.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
    entry.wc.byte_len = static_cast<std::uint32_t>(work->length);
    if (carries_imm(work->wr.opcode)) {
      entry.wc.imm_data = work->wr.imm_data;
      entry.wc.wc_flags = IBV_WC_WITH_IMM;
    }
    entry.solicited = (work->wr.send_flags & IBV_SEND_SOLICITED) != 0;
  }
  entry.qp = &qp;
  entry.srq = static_cast<ReceiveQueue*>(qp.srq);
  push(*static_cast<CompletionQueue*>(qp.recv_cq), entry);
}

// ---- steps

void Fabric::enqueue(QueuePair& qp) {
  if (qp.queued || !qp.alive || qp.sends.empty()) return;
  qp.queued = true;
  active.push_back(&qp);
}

bool Fabric::step() {
  ++steps;
  bool moved = false;
  for (QueuePair* qp : std::exchange(flushing, {})) {
    if (steps >= qp->flush_at)
      flush_receives(*qp);
    else
      flushing.push_back(qp);
    moved = true;
  }
  for (QueuePair* qp : std::exchange(active, {})) {
    qp->queued = false;
    if (qp->alive && run(*qp)) moved = true;
    enqueue(*qp);
  }
  return moved;
}

bool Fabric::run(QueuePair& qp) {
  if (qp.device().frozen) return false;
  std::size_t budget = options.bytes_per_step;
  bool moved = false;
  while (qp.now == IBV_QPS_RTS && !qp.sends.empty() && budget > 0) {
    Work& work = qp.sends.front();
    const Outcome outcome = attempt(qp, work, budget);
    if (outcome.kind == Outcome::kWait) return moved;
    budget -= std::min(budget, kPacketCost);
    moved = true;
    if (outcome.kind == Outcome::kMore) continue;
    const Work finished = std::move(work);
    qp.sends.pop_front();
    complete_send(qp, finished, outcome.status);
    if (outcome.kind == Outcome::kFailed) to_error(qp);
  }
  return moved;
}

Outcome Fabric::silence(QueuePair& qp, Work& work, const char* why) {
  qp.silence = why;
  ++work.silence;
  // A timeout of 0 is infinite.
  if (qp.attributes.timeout == 0 || work.silence < options.retry_steps * (qp.attributes.retry_cnt + 1)) {
    return {Outcome::kWait};
  }
  return failed_with(IBV_WC_RETRY_EXC_ERR);
}

Outcome Fabric::attempt(QueuePair& qp, Work& work, std::size_t& budget) {
  if (work.fault != IBV_WC_SUCCESS) return failed_with(work.fault);
  const FakePortOptions& port = *qp.device().port(qp.attributes.port_num);
  if (work.length > port.max_message_bytes) return failed_with(IBV_WC_LOC_LEN_ERR);
  const char* why = "";
  QueuePair* peer = find_peer(qp, why);
  if (peer == nullptr) return silence(qp, work, why);
  if (peer->device().frozen) return {Outcome::kWait};
  const auto link = links.find({&qp.device(), &peer->device()});
  const LinkState state = link == links.end() ? LinkState::kUp : link->second;
  if (state == LinkState::kDown) return silence(qp, work, "the link is down");
  if (state == LinkState::kAcksLost && work.wr.opcode == IBV_WR_RDMA_READ) {
    return silence(qp, work, "the answers are lost");
  }
  if (!work.performed) {
    if (peer->now == IBV_QPS_RTR && !peer->established) {
      peer->established = true;
      ibv_async_event event{};
      event.event_type = IBV_EVENT_COMM_EST;
      event.element.qp = peer;
      raise(*static_cast<Context*>(peer->context), event);
    }
    const std::uint64_t before = work.done;
    const Outcome outcome = perform(qp, *peer, work, budget);
    qp.device().counters.bytes += work.done - before;
    if (outcome.kind != Outcome::kDone) {
      if (outcome.kind == Outcome::kMore) work.silence = 0;
      return outcome;
    }
    work.performed = true;
  }
  if (state == LinkState::kAcksLost) return silence(qp, work, "the answers are lost");
  qp.silence = "";
  return is_atomic(work.wr.opcode) ? place_result(qp, work) : Outcome{Outcome::kDone};
}

// ---- responders

namespace {

struct Address {
  const FakePortOptions* port = nullptr;
  const FakeGid* gid = nullptr;  // null without a global route
};

Address own_address(const QueuePair& qp) {
  Address out;
  out.port = qp.device().port(qp.attributes.port_num);
  const ibv_ah_attr& path = qp.attributes.ah_attr;
  if (path.is_global != 0 && path.grh.sgid_index < out.port->gids.size()) {
    out.gid = &out.port->gids[path.grh.sgid_index];
  }
  return out;
}

// Returns whether packets of a queue pair with this path reach `to`.
bool reaches(const ibv_ah_attr& path, const Address& from, const Address& to) {
  if (from.port->link_layer != to.port->link_layer) return false;
  if (to.port->link_layer == IBV_LINK_LAYER_INFINIBAND && path.dlid != to.port->lid) return false;
  if (path.is_global == 0) return to.port->link_layer == IBV_LINK_LAYER_INFINIBAND;
  return from.gid != nullptr && to.gid != nullptr && from.gid->type == to.gid->type &&
         path.grh.hop_limit > 0 && std::memcmp(&path.grh.dgid, &to.gid->gid, sizeof(ibv_gid)) == 0;
}

}  // namespace

QueuePair* Fabric::find_peer(QueuePair& qp, const char*& why) {
  const Address mine = own_address(qp);
  if (qp.dead() || mine.port->state != IBV_PORT_ACTIVE) {
    why = "the local port is down";
    return nullptr;
  }
  why = "no such queue pair there";
  for (const auto& device : devices) {
    const auto found = device->queue_pairs.find(qp.attributes.dest_qp_num);
    if (found == device->queue_pairs.end()) continue;
    QueuePair& peer = *found->second;
    if (&peer == &qp) {
      why = "it is connected to itself";
    } else if (peer.dead()) {
      why = "the remote device is dead";
    } else if (peer.now != IBV_QPS_RTR && peer.now != IBV_QPS_RTS) {
      why = "the remote queue pair is not ready to receive";
    } else if (const Address other = own_address(peer); other.port->state != IBV_PORT_ACTIVE) {
      why = "the remote port is down";
    } else if (!reaches(qp.attributes.ah_attr, mine, other)) {
      why = "the path does not lead to the remote queue pair";
    } else if (!reaches(peer.attributes.ah_attr, other, mine)) {
      why = "the path of the remote queue pair does not lead back";
    } else if (peer.attributes.dest_qp_num != qp.qp_num) {
      why = "the remote queue pair is connected to another one";
    } else if (peer.attributes.rq_psn != qp.attributes.sq_psn) {
      why = "the remote queue pair expects another packet sequence number";
    } else if (mine.port->pkeys[qp.attributes.pkey_index] != other.port->pkeys[peer.attributes.pkey_index]) {
      why = "the partition keys differ";
    } else {
      return &peer;
    }
  }
  return nullptr;
}

// ---- operations

Outcome Fabric::refuse(QueuePair& peer, ibv_wc_status status, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = &peer;
  raise(*static_cast<Context*>(peer.context), event);
  to_error(peer);
  return failed_with(status);
}

namespace {

unsigned needed_right(ibv_wr_opcode opcode) {
  if (is_write(opcode)) return IBV_ACCESS_REMOTE_WRITE;
  if (is_atomic(opcode)) return IBV_ACCESS_REMOTE_ATOMIC;
  if (opcode == IBV_WR_RDMA_READ) return IBV_ACCESS_REMOTE_READ;
  return 0;
}

// Returns how many of `left` bytes to move in this step: whole packets, so that no word is torn.
std::uint64_t piece(const QueuePair& qp, std::uint64_t left, std::size_t budget) {
  const std::uint64_t packet = mtu_bytes(qp.attributes.path_mtu);
  if (left <= packet || left <= budget) return left;
  return std::max<std::uint64_t>(budget / packet, 1) * packet;
}

void spend(std::size_t& budget, std::uint64_t bytes) { budget -= std::min<std::uint64_t>(budget, bytes); }

}  // namespace

Outcome Fabric::perform(QueuePair& qp, QueuePair& peer, Work& work, std::size_t& budget) {
  if (qp.attributes.path_mtu > peer.attributes.path_mtu &&
      work.length > mtu_bytes(peer.attributes.path_mtu)) {
    return refuse(peer, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  }
  const ibv_wr_opcode opcode = work.wr.opcode;
  if (fetches(opcode)) {
    if (qp.attributes.max_rd_atomic == 0) {
      misuse("a read or atomic on a queue pair with max_rd_atomic 0");
      return failed_with(IBV_WC_LOC_QP_OP_ERR);
    }
    if (qp.attributes.max_rd_atomic > peer.attributes.max_dest_rd_atomic) {
      misuse("max_rd_atomic is larger than the peer's max_dest_rd_atomic");
      return refuse(peer, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
  }
  const unsigned right = needed_right(opcode);
  if ((peer.attributes.qp_access_flags & right) != right) {
    return refuse(peer, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  }
  if (is_send(opcode)) return send(qp, peer, work, budget);
  if (is_write(opcode)) return write(qp, peer, work, budget);
  if (is_atomic(opcode)) return atomic(peer, work);
  return read(qp, peer, work, budget);
}

Outcome Fabric::wait_for_receive(QueuePair& qp, QueuePair& peer, Work& work) {
  if (steps < work.rnr_until) return {Outcome::kWait};
  auto* srq = static_cast<ReceiveQueue*>(peer.srq);
  if (srq != nullptr && !srq->receives.empty()) {
    peer.receiving = std::move(srq->receives.front());
    srq->receives.pop_front();
    return {Outcome::kDone};
  }
  ++peer.device().counters.rnr_events;
  qp.silence = "the peer has no receive";
  constexpr int kForever = 7;
  if (qp.attributes.rnr_retry != kForever && work.rnr_tries++ >= qp.attributes.rnr_retry) {
    return failed_with(IBV_WC_RNR_RETRY_EXC_ERR);
  }
  work.rnr_until = steps + static_cast<std::uint64_t>(options.rnr_steps);
  return {Outcome::kWait};
}

bool Fabric::source(QueuePair& qp, Work& work, std::uint64_t length, Segments& out) {
  if (!work.is_inline) return gather(qp.pd, work.sges, work.done, length, 0, out);
  if (length > 0) out.emplace_back(work.inlined.data() + work.done, length);
  return true;
}

Outcome Fabric::send(QueuePair& qp, QueuePair& peer, Work& work, std::size_t& budget) {
  if (!peer.receiving) {
    const Outcome outcome = wait_for_receive(qp, peer, work);
    if (outcome.kind != Outcome::kDone) return outcome;
    if (work.length > peer.receiving->length) {
      complete_receive(peer, *std::exchange(peer.receiving, std::nullopt), IBV_WC_LOC_LEN_ERR, nullptr);
      return refuse(peer, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
  }
  const std::uint64_t length = piece(qp, work.length - work.done, budget);
  Segments from;
  Segments to;
  const bool good_source = source(qp, work, length, from);
  const bool good_target =
      gather(peer.srq->pd, peer.receiving->sges, work.done, length, IBV_ACCESS_LOCAL_WRITE, to);
  work.done += copy(from, to);
  spend(budget, length);
  if (!good_source) return failed_with(IBV_WC_LOC_PROT_ERR);
  if (!good_target) {
    complete_receive(peer, *std::exchange(peer.receiving, std::nullopt), IBV_WC_LOC_PROT_ERR, nullptr);
    return refuse(peer, IBV_WC_REM_OP_ERR, IBV_EVENT_QP_FATAL);
  }
  if (work.done < work.length) return {Outcome::kMore};
  complete_receive(peer, *std::exchange(peer.receiving, std::nullopt), IBV_WC_SUCCESS, &work);
  return {Outcome::kDone};
}

Outcome Fabric::write(QueuePair& qp, QueuePair& peer, Work& work, std::size_t& budget) {
  if (work.done < work.length) {
    const std::uint64_t left = work.length - work.done;
    const std::uint64_t length = piece(qp, left, budget);
    // The first packet announces the whole length.
    std::byte* target = remote(peer.pd, work.wr.wr.rdma.rkey, work.wr.wr.rdma.remote_addr + work.done, left,
                               IBV_ACCESS_REMOTE_WRITE);
    if (target == nullptr) return refuse(peer, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    Segments from;
    const bool good_source = source(qp, work, length, from);
    work.done += copy(from, {MutableBytes(target, length)});
    spend(budget, length);
    if (!good_source) return failed_with(IBV_WC_LOC_PROT_ERR);
    if (work.done < work.length) return {Outcome::kMore};
  }
  if (!carries_imm(work.wr.opcode)) return {Outcome::kDone};
  const Outcome outcome = wait_for_receive(qp, peer, work);
  if (outcome.kind == Outcome::kDone)
    complete_receive(peer, *std::exchange(peer.receiving, std::nullopt), IBV_WC_SUCCESS, &work);
  return outcome;
}

Outcome Fabric::read(QueuePair& qp, QueuePair& peer, Work& work, std::size_t& budget) {
  if (work.done == work.length) return {Outcome::kDone};
  const std::uint64_t left = work.length - work.done;
  const std::uint64_t length = piece(qp, left, budget);
  std::byte* origin = remote(peer.pd, work.wr.wr.rdma.rkey, work.wr.wr.rdma.remote_addr + work.done, left,
                             IBV_ACCESS_REMOTE_READ);
  if (origin == nullptr) return refuse(peer, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  Segments to;
  const bool good_target = gather(qp.pd, work.sges, work.done, length, IBV_ACCESS_LOCAL_WRITE, to);
  work.done += copy({MutableBytes(origin, length)}, to);
  spend(budget, length);
  if (!good_target) return failed_with(IBV_WC_LOC_PROT_ERR);
  return {work.done < work.length ? Outcome::kMore : Outcome::kDone, IBV_WC_SUCCESS};
}

Outcome Fabric::atomic(QueuePair& peer, Work& work) {
  const auto& wanted = work.wr.wr.atomic;
  std::byte* target =
      remote(peer.pd, wanted.rkey, wanted.remote_addr, kAtomicBytes, IBV_ACCESS_REMOTE_ATOMIC);
  if (wanted.remote_addr % kAtomicBytes != 0) {
    return refuse(peer, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  }
  if (target == nullptr || reinterpret_cast<std::uintptr_t>(target) % kAtomicBytes != 0) {
    return refuse(peer, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  }
  auto* word = reinterpret_cast<std::uint64_t*>(target);
  std::uint64_t old = wanted.compare_add;
  if (work.wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    old = __atomic_fetch_add(word, wanted.compare_add, __ATOMIC_ACQ_REL);
  } else {
    __atomic_compare_exchange_n(word, &old, wanted.swap, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
  work.result = old;
  work.done = kAtomicBytes;
  return {Outcome::kDone};
}

// An invalid local key is detected only when the answer arrives: the remote word has changed by
// then.
Outcome Fabric::place_result(QueuePair& qp, Work& work) {
  Segments to;
  if (!gather(qp.pd, work.sges, 0, kAtomicBytes, IBV_ACCESS_LOCAL_WRITE, to)) {
    return failed_with(IBV_WC_LOC_PROT_ERR);
  }
  copy({MutableBytes(reinterpret_cast<std::byte*>(&work.result), kAtomicBytes)}, to);
  return {Outcome::kDone};
}

}  // namespace slime::transport::testing::fake
