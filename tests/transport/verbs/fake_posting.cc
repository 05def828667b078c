#include <cerrno>

#include "tests/transport/verbs/fake_objects.h"

// Posting to send queues.
namespace slime::transport::testing::fake {
namespace {

bool known(ibv_wr_opcode opcode, const Device& device) {
  if (is_atomic(opcode)) return device.options.attributes.atomic_cap != IBV_ATOMIC_NONE;
  return is_send(opcode) || is_write(opcode) || opcode == IBV_WR_RDMA_READ;
}

// Returns the errno with which drivers refuse the work request at once; 0 if it is valid.
int check(const QueuePair& qp, const ibv_send_wr& wr, std::uint64_t length) {
  const Device& device = qp.device();
  if (qp.dead()) return EIO;
  if (qp.now != IBV_QPS_RTS && qp.now != IBV_QPS_ERR) return EINVAL;
  if (!known(wr.opcode, device)) return EINVAL;
  if (wr.num_sge < 0 || static_cast<unsigned>(wr.num_sge) > qp.capacity.max_send_sge) return EINVAL;
  if (wr.opcode == IBV_WR_RDMA_READ && wr.num_sge > device.options.attributes.max_sge_rd) return EINVAL;
  if (is_atomic(wr.opcode) && (wr.num_sge != 1 || length != kAtomicBytes)) return EINVAL;
  if ((wr.send_flags & IBV_SEND_INLINE) != 0 &&
      (fetches(wr.opcode) || length > qp.capacity.max_inline_data)) {
    return EINVAL;
  }
  return qp.posted - qp.freed < qp.capacity.max_send_wr ? 0 : ENOMEM;
}

}  // namespace

int Fabric::post(QueuePair& qp, ibv_send_wr& wr) {
  if (const int error = injected(Call::kPostSend)) return error;
  Work work;
  if (wr.num_sge > 0) work.sges.assign(wr.sg_list, wr.sg_list + wr.num_sge);
  for (const ibv_sge& sge : work.sges) work.length += sge.length;
  if (const int error = check(qp, wr, work.length)) return error;
  work.wr = wr;
  work.wr.next = nullptr;
  work.wr.sg_list = nullptr;
  work.signaled = qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  work.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (work.is_inline) {
    for (const ibv_sge& sge : work.sges) {
      const auto* bytes = reinterpret_cast<const std::byte*>(sge.addr);
      work.inlined.insert(work.inlined.end(), bytes, bytes + sge.length);
    }
  }
  for (auto fault = work_faults.begin(); fault != work_faults.end(); ++fault) {
    const WorkFilter& filter = fault->filter;
    if (!filter.device.empty() && filter.device != qp.device().options.name) continue;
    if ((filter.opcode && *filter.opcode != wr.opcode) || --fault->nth > 0) continue;
    work.fault = fault->status;
    work_faults.erase(fault);
    break;
  }
  work.sequence = qp.posted++;
  ++qp.device().counters.work_requests;
  if (qp.now == IBV_QPS_ERR) {
    complete_send(qp, work, IBV_WC_WR_FLUSH_ERR);
  } else {
    qp.sends.push_back(std::move(work));
    enqueue(qp);
  }
  return 0;
}

namespace {

int post_send(ibv_qp* handle, ibv_send_wr* first, ibv_send_wr** bad) {
  const Entered fabric;
  if (!fabric) return EINVAL;
  auto* qp = fabric->use<QueuePair>(handle, "post_send");
  if (qp == nullptr) return EINVAL;
  int error = 0;
  const std::uint64_t before = qp->posted;
  for (ibv_send_wr* wr = first; wr != nullptr && error == 0; wr = wr->next) {
    error = fabric->post(*qp, *wr);
    if (error != 0) *bad = wr;
  }
  if (qp->posted != before) ++qp->device().counters.doorbells;
  if (fabric->options.step_on_calls && fabric->busy()) fabric->step();
  fabric->work_arrived.notify_one();
  return error;
}

}  // namespace

void fill_posting(verbs::Functions& table) { table.post_send = post_send; }

}  // namespace slime::transport::testing::fake
