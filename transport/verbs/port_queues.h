#pragma once

#include <cstdint>
#include <memory>

#include "transport/provider.h"
#include "transport/verbs/context.h"

namespace slime::transport::verbs {

// The queues of a port: a completion queue with its event channel, and a shared receive queue.
// Their sizes are fitted to the limits of the device. Thread: any, one at a time.
class PortQueues {
 public:
  // Returns kInvalidArgument if the device's limits are below what `options` ask for.
  static Result<std::unique_ptr<PortQueues>> create(std::shared_ptr<Context> context,
                                                    const PortOptions& options);
  PortQueues(const PortQueues&) = delete;
  PortQueues& operator=(const PortQueues&) = delete;
  ~PortQueues();

  [[nodiscard]] ibv_comp_channel* channel() const { return channel_; }
  [[nodiscard]] ibv_cq* cq() const { return cq_; }
  [[nodiscard]] ibv_srq* srq() const { return srq_; }
  // Returns the number of entries of the completion queue that are for work requests, not for
  // receives.
  [[nodiscard]] std::uint32_t work_requests() const { return work_requests_; }
  // Most work requests of one send queue.
  [[nodiscard]] std::uint32_t data_depth() const { return data_depth_; }
  // max_gather() returns the most local pieces of one write; max_scatter(), of one read.
  [[nodiscard]] std::uint32_t max_gather() const { return max_gather_; }
  [[nodiscard]] std::uint32_t max_scatter() const { return max_scatter_; }

 private:
  explicit PortQueues(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  Status measure(const PortOptions& options);
  Status open(const PortOptions& options);

  const std::shared_ptr<Context> context_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  std::uint32_t work_requests_ = 0;
  std::uint32_t data_depth_ = 0;
  std::uint32_t max_gather_ = 1;
  std::uint32_t max_scatter_ = 1;
};

}  // namespace slime::transport::verbs
