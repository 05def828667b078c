#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/transport/verbs/fake_objects.h"

// Shared receive queues, and the states of queue pairs.
namespace slime::transport::testing::fake {

void Fabric::to_error(QueuePair& qp) {
  if (qp.now == IBV_QPS_ERR || qp.now == IBV_QPS_RESET) return;
  qp.now = IBV_QPS_ERR;
  const std::deque<Work> left = std::exchange(qp.sends, {});
  for (const Work& work : left) complete_send(qp, work, IBV_WC_WR_FLUSH_ERR);
  if (qp.receiving) qp.taken.push_back(*std::exchange(qp.receiving, std::nullopt));
  auto* const srq = static_cast<ReceiveQueue*>(qp.srq);
  while (srq != nullptr && qp.taken.size() < options.taken_receives && !srq->receives.empty()) {
    qp.taken.push_back(std::move(srq->receives.front()));
    srq->receives.pop_front();
  }
  if (options.flush_steps == 0) return flush_receives(qp);
  qp.flush_at = steps + static_cast<std::uint64_t>(options.flush_steps);
  flushing.push_back(&qp);
}

void Fabric::flush_receives(QueuePair& qp) {
  for (const Receive& receive : std::exchange(qp.taken, {}))
    complete_receive(qp, receive, IBV_WC_WR_FLUSH_ERR, nullptr);
  if (options.last_receive_event && qp.srq != nullptr && !qp.last_event_raised) {
    qp.last_event_raised = true;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
    event.element.qp = &qp;
    raise(*static_cast<Context*>(qp.context), event);
  }
}

void Fabric::drop_work(QueuePair& qp) {
  qp.sends.clear();
  qp.freed = qp.posted;
  if (qp.receiving) qp.taken.push_back(*std::exchange(qp.receiving, std::nullopt));
  if (qp.srq != nullptr)
    static_cast<ReceiveQueue*>(qp.srq)->occupied -= static_cast<std::uint32_t>(qp.taken.size());
  qp.taken.clear();
  std::erase(flushing, &qp);
  if (options.keep_stale) return;
  forget_entries(*static_cast<CompletionQueue*>(qp.send_cq), qp);
  forget_entries(*static_cast<CompletionQueue*>(qp.recv_cq), qp);
}

std::uint32_t Fabric::new_number(Device& device) {
  if (options.reuse_numbers && device.last_number != 0) return std::exchange(device.last_number, 0);
  for (;;) {
    const auto number = static_cast<std::uint32_t>(2 + rng.below((1U << 24) - 3));
    if (numbers.insert(number).second) return number;
  }
}

namespace {

// ---- shared receive queues

ibv_srq* create_srq(ibv_pd* handle, ibv_srq_init_attr* wanted) {
  const Entered fabric;
  if (!fabric) return failed(EINVAL);
  auto* domain = fabric->use<Domain>(handle, "create_srq");
  if (domain == nullptr) return failed(EINVAL);
  if (const int error = fabric->injected(Call::kCreateSrq)) return failed(error);
  const Device& device = static_cast<Context*>(domain->context)->parent();
  if (static_cast<Context*>(domain->context)->dead) return failed(EIO);
  const ibv_device_attr& limits = device.options.attributes;
  if (wanted->attr.max_wr == 0 || wanted->attr.max_wr > static_cast<unsigned>(limits.max_srq_wr) ||
      wanted->attr.max_sge > static_cast<unsigned>(limits.max_srq_sge)) {
    return failed(EINVAL);
  }
  ReceiveQueue& srq = *fabric->keep(fabric->receive_queues);
  srq.context = domain->context;
  srq.srq_context = wanted->srq_context;
  srq.pd = domain;
  srq.max_wr = wanted->attr.max_wr;
  srq.max_sge = wanted->attr.max_sge;
  ++domain->users;
  return &srq;
}

int destroy_srq(ibv_srq* handle) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* srq = fabric->use<ReceiveQueue>(handle, "destroy_srq");
  if (srq == nullptr) return EINVAL;
  if (srq->users != 0) return EBUSY;
  if (srq->async_delivered != 0) {
    fabric->misuse("destroy_srq would wait for ever: events of it were not acknowledged");
  }
  fabric->forget_events(*static_cast<Context*>(srq->context), srq);
  srq->receives.clear();
  srq->alive = false;
  --static_cast<Domain*>(srq->pd)->users;
  return fabric->ended(srq->context);
}

int post_srq_recv(ibv_srq* handle, ibv_recv_wr* first, ibv_recv_wr** bad) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* srq = fabric->use<ReceiveQueue>(handle, "post_srq_recv");
  if (srq == nullptr) return EINVAL;
  Device& device = static_cast<Context*>(srq->context)->parent();
  for (ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next) {
    *bad = wr;
    if (const int error = fabric->injected(Call::kPostReceive)) return error;
    if (static_cast<Context*>(srq->context)->dead) return EIO;
    if (wr->num_sge < 0 || static_cast<unsigned>(wr->num_sge) > srq->max_sge) return EINVAL;
    if (srq->occupied >= srq->max_wr) return ENOMEM;
    Receive receive;
    receive.wr_id = wr->wr_id;
    receive.sges.assign(wr->sg_list, wr->sg_list + wr->num_sge);
    for (const ibv_sge& sge : receive.sges) receive.length += sge.length;
    srq->receives.push_back(std::move(receive));
    ++srq->occupied;
    ++device.counters.receives;
  }
  return 0;
}

// ---- queue pairs

bool fits(const ibv_qp_cap& cap, const FakeDeviceOptions& device) {
  const ibv_device_attr& limits = device.attributes;
  const auto at_most = [](std::uint32_t value, int limit) {
    return value <= static_cast<std::uint32_t>(limit);
  };
  return at_most(cap.max_send_wr, limits.max_qp_wr) && at_most(cap.max_recv_wr, limits.max_qp_wr) &&
         at_most(cap.max_send_sge, limits.max_sge) && at_most(cap.max_recv_sge, limits.max_sge) &&
         cap.max_inline_data <= device.max_inline;
}

ibv_qp* create_qp(ibv_pd* handle, ibv_qp_init_attr* wanted) {
  Entered fabric;
  fabric.pass(Call::kCreateQp);
  if (!fabric) return failed(EINVAL);
  auto* domain = fabric->use<Domain>(handle, "create_qp");
  auto* send_cq = fabric->use<CompletionQueue>(wanted->send_cq, "create_qp");
  auto* recv_cq = fabric->use<CompletionQueue>(wanted->recv_cq, "create_qp");
  if (domain == nullptr || send_cq == nullptr || recv_cq == nullptr) return failed(EINVAL);
  auto* srq = wanted->srq == nullptr ? nullptr : fabric->use<ReceiveQueue>(wanted->srq, "create_qp");
  if (wanted->srq != nullptr && (srq == nullptr || srq->context != domain->context)) return failed(EINVAL);
  if (send_cq->context != domain->context || recv_cq->context != domain->context) return failed(EINVAL);
  if (const int error = fabric->injected(Call::kCreateQp)) return failed(error);
  Device& device = static_cast<Context*>(domain->context)->parent();
  if (static_cast<Context*>(domain->context)->dead) return failed(EIO);
  if (wanted->qp_type != IBV_QPT_RC || !fits(wanted->cap, device.options)) return failed(EINVAL);
  if (device.queue_pairs.size() >= static_cast<std::size_t>(device.options.attributes.max_qp)) {
    return failed(ENOMEM);
  }
  QueuePair& qp = *fabric->keep(fabric->queue_pairs);
  qp.context = domain->context;
  qp.qp_context = wanted->qp_context;
  qp.pd = domain;
  qp.send_cq = send_cq;
  qp.recv_cq = recv_cq;
  qp.srq = srq;
  qp.state = qp.now = IBV_QPS_RESET;
  qp.qp_type = IBV_QPT_RC;
  qp.qp_num = fabric->new_number(device);
  if (srq != nullptr) wanted->cap.max_recv_wr = wanted->cap.max_recv_sge = 0;
  qp.capacity = wanted->cap;
  qp.signal_all = wanted->sq_sig_all != 0;
  device.queue_pairs[qp.qp_num] = &qp;
  ++domain->users;
  ++send_cq->users;
  ++recv_cq->users;
  if (srq != nullptr) ++srq->users;
  return &qp;
}

int destroy_qp(ibv_qp* handle) {
  Entered fabric;
  fabric.pass(Call::kDestroyQp);
  if (!fabric) return EINVAL;
  auto* qp = fabric->use<QueuePair>(handle, "destroy_qp");
  if (qp == nullptr) return EINVAL;
  fabric.wait_acknowledged(qp->async_delivered, "destroy_qp");
  fabric->forget_events(*static_cast<Context*>(qp->context), qp);
  fabric->drop_work(*qp);
  qp->alive = false;
  qp->device().queue_pairs.erase(qp->qp_num);
  qp->device().last_number = qp->qp_num;
  --static_cast<Domain*>(qp->pd)->users;
  --static_cast<CompletionQueue*>(qp->send_cq)->users;
  --static_cast<CompletionQueue*>(qp->recv_cq)->users;
  if (qp->srq != nullptr) --static_cast<ReceiveQueue*>(qp->srq)->users;
  return fabric->ended(qp->context);
}

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};
// The transitions of the specification for reliable connections.
constexpr std::array kTransitions{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    Transition{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR,
               IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                   IBV_QP_MIN_RNR_TIMER,
               IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS,
               IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
               IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

bool allowed(ibv_qp_state from, ibv_qp_state to, int mask) {
  const int others = mask & ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return (others & ~IBV_QP_CUR_STATE) == 0;
  for (const Transition& one : kTransitions) {
    if (one.from != from || one.to != to) continue;
    return (others & one.required) == one.required && (others & ~(one.required | one.optional)) == 0;
  }
  return false;
}

bool empty(const ibv_gid& gid) {
  const ibv_gid zero{};
  return std::memcmp(&gid, &zero, sizeof(zero)) == 0;
}

bool good_path(Device& device, int port_number, const ibv_ah_attr& path) {
  const FakePortOptions* port = device.port(port_number);
  if (port == nullptr || path.port_num != port_number || path.sl > 15) return false;
  if (port->link_layer == IBV_LINK_LAYER_ETHERNET) {
    if (path.is_global == 0) return false;
  } else if (path.dlid == 0) {
    return false;
  }
  if (path.is_global == 0) return true;
  return path.grh.sgid_index < port->gids.size() && !empty(port->gids[path.grh.sgid_index].gid) &&
         !empty(path.grh.dgid) && path.grh.flow_label < (1U << 20);
}

bool good_values(const QueuePair& qp, const ibv_qp_attr& wanted, int mask) {
  Device& device = qp.device();
  const ibv_device_attr& limits = device.options.attributes;
  const auto has = [mask](int bit) { return (mask & bit) != 0; };
  const int port_number = has(IBV_QP_PORT) ? wanted.port_num : qp.attributes.port_num;
  const FakePortOptions* port = device.port(port_number);
  if (has(IBV_QP_PORT) && port == nullptr) return false;
  if (has(IBV_QP_PKEY_INDEX) && (port == nullptr || wanted.pkey_index >= port->pkeys.size())) return false;
  if (has(IBV_QP_CUR_STATE) && wanted.cur_qp_state != qp.now) return false;
  if (has(IBV_QP_AV) && !good_path(device, port_number, wanted.ah_attr)) return false;
  if (has(IBV_QP_PATH_MTU) &&
      (port == nullptr || wanted.path_mtu < IBV_MTU_256 || wanted.path_mtu > port->active_mtu)) {
    return false;
  }
  const std::uint32_t bits24 = 1U << 24;
  if (has(IBV_QP_DEST_QPN) && wanted.dest_qp_num >= bits24) return false;
  if (has(IBV_QP_RQ_PSN) && wanted.rq_psn >= bits24) return false;
  if (has(IBV_QP_SQ_PSN) && wanted.sq_psn >= bits24) return false;
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC) && wanted.max_dest_rd_atomic > limits.max_qp_rd_atom) return false;
  if (has(IBV_QP_MAX_QP_RD_ATOMIC) && wanted.max_rd_atomic > limits.max_qp_init_rd_atom) return false;
  if (has(IBV_QP_MIN_RNR_TIMER) && wanted.min_rnr_timer > 31) return false;
  if (has(IBV_QP_TIMEOUT) && wanted.timeout > 31) return false;
  if (has(IBV_QP_RETRY_CNT) && wanted.retry_cnt > 7) return false;
  return !has(IBV_QP_RNR_RETRY) || wanted.rnr_retry <= 7;
}

void apply(ibv_qp_attr& to, const ibv_qp_attr& from, int mask) {
  const auto copy = [&](int bit, auto member) {
    if ((mask & bit) != 0) to.*member = from.*member;
  };
  copy(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  copy(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  copy(IBV_QP_PORT, &ibv_qp_attr::port_num);
  copy(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  copy(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  copy(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
  copy(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
  copy(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  copy(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  copy(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  copy(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  copy(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  copy(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  copy(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
}

int modify_qp(ibv_qp* handle, ibv_qp_attr* wanted, int mask) {
  Entered fabric;
  if ((mask & IBV_QP_STATE) != 0 && wanted->qp_state == IBV_QPS_RTR) fabric.pass(Call::kConnectQp);
  if ((mask & IBV_QP_STATE) != 0 && wanted->qp_state == IBV_QPS_ERR) fabric.pass(Call::kFailQp);
  if (!fabric) return EINVAL;
  auto* qp = fabric->use<QueuePair>(handle, "modify_qp");
  if (qp == nullptr) return EINVAL;
  if (const int error = fabric->injected(Call::kModifyQp)) return error;
  if (qp->dead()) return EIO;
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? wanted->qp_state : qp->now;
  if (!allowed(qp->now, to, mask) || !good_values(*qp, *wanted, mask)) return EINVAL;
  apply(qp->attributes, *wanted, mask);
  if (to == IBV_QPS_ERR) {
    fabric->to_error(*qp);
    qp->now = IBV_QPS_ERR;
  } else if (to == IBV_QPS_RESET) {
    fabric->drop_work(*qp);
    qp->last_event_raised = qp->established = false;
    qp->attributes = {};
    qp->now = to;
  } else {
    qp->now = to;
  }
  qp->state = to;
  return 0;
}

int query_qp(ibv_qp* handle, ibv_qp_attr* out, int, ibv_qp_init_attr* init) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* qp = fabric->use<QueuePair>(handle, "query_qp");
  if (qp == nullptr) return EINVAL;
  if (qp->dead()) return EIO;
  *out = qp->attributes;
  out->qp_state = out->cur_qp_state = qp->state = qp->now;
  out->cap = qp->capacity;
  *init = {};
  init->qp_context = qp->qp_context;
  init->send_cq = qp->send_cq;
  init->recv_cq = qp->recv_cq;
  init->srq = qp->srq;
  init->cap = qp->capacity;
  init->qp_type = qp->qp_type;
  init->sq_sig_all = qp->signal_all ? 1 : 0;
  return 0;
}

}  // namespace

void fill_queue_pairs(verbs::Functions& table) {
  table.create_srq = create_srq;
  table.destroy_srq = destroy_srq;
  table.post_srq_recv = post_srq_recv;
  table.create_qp = create_qp;
  table.modify_qp = modify_qp;
  table.query_qp = query_qp;
  table.destroy_qp = destroy_qp;
}

}  // namespace slime::transport::testing::fake
