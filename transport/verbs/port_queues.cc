#include "transport/verbs/port_queues.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/str.h"
#include "transport/limits.h"
#include "transport/verbs/errors.h"

namespace slime::transport::verbs {
namespace {

Status make_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return from_errno("O_NONBLOCK on a verbs descriptor", errno);
  return {};
}

}  // namespace

Result<std::unique_ptr<PortQueues>> PortQueues::create(std::shared_ptr<Context> context,
                                                       const PortOptions& options) {
  std::unique_ptr<PortQueues> out(new PortQueues(std::move(context)));
  SLIME_TRY(out->measure(options));
  SLIME_TRY(out->open(options));
  return out;
}

Status PortQueues::measure(const PortOptions& options) {
  const ibv_device_attr& device = context_->device;
  if (options.pool_slots > static_cast<std::uint32_t>(device.max_srq_wr))
    return {Code::kInvalidArgument, str("pool_slots is ", options.pool_slots, ", ",
                                        context_->selection.device, " takes at most ", device.max_srq_wr)};
  const auto entries = std::min<std::uint64_t>(std::uint64_t{options.pool_slots} + limits::kPortWorkRequests,
                                               static_cast<std::uint64_t>(device.max_cqe));
  if (entries < options.pool_slots + 4 * limits::kReservedWorkRequests)
    return {Code::kInvalidArgument, str("pool_slots is ", options.pool_slots, ", a completion queue of ",
                                        context_->selection.device, " has at most ", device.max_cqe)};
  work_requests_ = static_cast<std::uint32_t>(entries - options.pool_slots);
  data_depth_ = std::min({static_cast<std::uint32_t>(context_->options.send_queue_depth),
                          static_cast<std::uint32_t>(device.max_qp_wr), work_requests_ / 2});
  max_gather_ = static_cast<std::uint32_t>(std::clamp(device.max_sge, 1, int{limits::kGatherParts}));
  max_scatter_ = static_cast<std::uint32_t>(std::clamp(device.max_sge_rd, 1, static_cast<int>(max_gather_)));
  return {};
}

Status PortQueues::open(const PortOptions& options) {
  const Functions& f = context_->functions;
  const std::uint32_t entries = options.pool_slots + work_requests_;
  channel_ = f.create_comp_channel(context_->handle);
  if (channel_ == nullptr) return call_error("ibv_create_comp_channel", errno);
  cq_ = f.create_cq(context_->handle, static_cast<int>(entries), nullptr, channel_, 0);
  if (cq_ == nullptr) return call_error(str("ibv_create_cq of ", entries, " entries"), errno, true);
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = options.pool_slots;
  attributes.attr.max_sge = 1;
  srq_ = f.create_srq(context_->pd, &attributes);
  if (srq_ == nullptr)
    return call_error(str("ibv_create_srq of ", options.pool_slots, " slots"), errno, true);
  SLIME_TRY(make_nonblocking(channel_->fd));
  return make_nonblocking(context_->handle->async_fd);
}

PortQueues::~PortQueues() {
  const Functions& f = context_->functions;
  if (srq_ != nullptr) f.destroy_srq(srq_);
  if (cq_ != nullptr) f.destroy_cq(cq_);
  if (channel_ != nullptr) f.destroy_comp_channel(channel_);
}

}  // namespace slime::transport::verbs
