#include "transport/verbs/queue_pair.h"

#include <cerrno>

#include "base/random.h"
#include "base/str.h"
#include "transport/verbs/errors.h"

namespace slime::transport::verbs {
namespace {

std::uint32_t random_psn() {
  std::uint32_t psn = 0;
  random_bytes(std::as_writable_bytes(std::span(&psn, 1)));
  return psn & MessageNote::kMask;
}

ibv_qp_init_attr init_attributes(const QueuePairShape& shape, std::uint32_t max_inline) {
  ibv_qp_init_attr out{};
  out.send_cq = shape.cq;
  out.recv_cq = shape.cq;
  out.srq = shape.srq;
  out.qp_type = IBV_QPT_RC;
  out.cap.max_send_wr = shape.depth;
  out.cap.max_send_sge = shape.max_sge;
  out.cap.max_inline_data = max_inline;
  return out;
}

}  // namespace

Result<std::shared_ptr<QueuePair>> QueuePair::create(std::shared_ptr<Context> context,
                                                     std::shared_ptr<const void> queues,
                                                     const QueuePairShape& shape) {
  const Functions& f = context->functions;
  std::uint32_t max_inline = shape.max_inline;
  ibv_qp* qp = nullptr;
  for (;;) {
    ibv_qp_init_attr attributes = init_attributes(shape, max_inline);
    qp = f.create_qp(context->pd, &attributes);
    if (qp != nullptr) {
      max_inline = attributes.cap.max_inline_data;
      break;
    }
    // EINVAL may mean that the device cannot have so many inline bytes: tries again with half as
    // many.
    if (errno != EINVAL || max_inline == 0) {
      return call_error(
          str("ibv_create_qp on ", context->describe(), " with ", shape.depth, " work requests"), errno,
          true);
    }
    max_inline /= 2;
  }
  std::shared_ptr<QueuePair> out(new QueuePair(std::move(context), std::move(queues), qp, shape, max_inline));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<std::uint8_t>(out->context_->selection.port);
  attributes.pkey_index = static_cast<std::uint16_t>(out->context_->options.pkey_index);
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  if (out->context_->device.atomic_cap != IBV_ATOMIC_NONE)
    attributes.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
  const int rc =
      f.modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
  if (rc != 0) return call_error("ibv_modify_qp to INIT", rc);
  return out;
}

QueuePair::QueuePair(std::shared_ptr<Context> context, std::shared_ptr<const void> queues, ibv_qp* qp,
                     const QueuePairShape& shape, std::uint32_t max_inline)
    : context_(std::move(context)),
      queues_(std::move(queues)),
      qp_(qp),
      depth_(shape.depth),
      max_inline_(max_inline),
      psn_(random_psn()) {}

QueuePair::~QueuePair() {
  // ibv_destroy_qp() fails only for a queue pair that is still in use, which this one is not, or on
  // a device that has gone together with its queue pairs.
  context_->functions.destroy_qp(qp_);
}

Status QueuePair::connect(const QueuePairRoute& route) {
  const Options& options = context_->options;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = route.mtu;
  attributes.dest_qp_num = route.remote.number;
  attributes.rq_psn = route.remote.psn;
  attributes.max_dest_rd_atomic = route.read_responses;
  attributes.min_rnr_timer = static_cast<std::uint8_t>(options.min_rnr_timer);
  attributes.ah_attr.port_num = static_cast<std::uint8_t>(context_->selection.port);
  attributes.ah_attr.sl = static_cast<std::uint8_t>(options.service_level);
  attributes.ah_attr.dlid = route.remote_lid;
  const bool other_subnet = route.local_gid.global.subnet_prefix != route.remote_gid.global.subnet_prefix;
  if (route.ethernet || other_subnet || (context_->port_attributes().flags & IBV_QPF_GRH_REQUIRED) != 0) {
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.dgid = route.remote_gid;
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(route.local_gid_index);
    attributes.ah_attr.grh.hop_limit = static_cast<std::uint8_t>(options.hop_limit);
    attributes.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(options.traffic_class);
  }
  int rc =
      context_->functions.modify_qp(qp_, &attributes,
                                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  receives_ = rc == 0;
  if (rc != 0) {
    return call_error(str("ibv_modify_qp to RTR from ", gid_text(route.local_gid), " to ",
                          gid_text(route.remote_gid), " on ", context_->describe()),
                      rc);
  }
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = static_cast<std::uint8_t>(route.retries.timeout);
  attributes.retry_cnt = static_cast<std::uint8_t>(route.retries.retry_count);
  attributes.rnr_retry = static_cast<std::uint8_t>(options.rnr_retry);
  attributes.sq_psn = psn_;
  attributes.max_rd_atomic = route.read_requests;
  rc = context_->functions.modify_qp(qp_, &attributes,
                                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (rc != 0) return call_error("ibv_modify_qp to RTS", rc);
  return {};
}

void QueuePair::fail() {
  if (failed_) return;
  failed_ = true;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // A device that refuses even this call has gone. The destructor then ends the device's use of the
  // memory.
  context_->functions.modify_qp(qp_, &attributes, IBV_QP_STATE);
}

Status QueuePair::post(ibv_send_wr* first, std::uint32_t count, std::uint32_t signaled_end,
                       std::uint32_t& accepted) {
  ibv_send_wr* bad = nullptr;
  const int rc = context_->functions.post_send(qp_, first, &bad);
  accepted = count;
  if (rc != 0) {
    accepted = 0;
    for (const ibv_send_wr* at = first; at != nullptr && at != bad; at = at->next) ++accepted;
  }
  if (signaled_end > 0 && signaled_end <= accepted) signaled_ = posted_ + signaled_end;
  posted_ += accepted;
  if (rc != 0) return call_error(str("ibv_post_send of ", count, " work requests"), rc);
  return {};
}

}  // namespace slime::transport::verbs
