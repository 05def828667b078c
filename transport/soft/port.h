#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "transport/provider.h"
#include "transport/soft/bulk_pace.h"
#include "transport/soft/device.h"
#include "transport/soft/frames.h"
#include "transport/soft/pool.h"

namespace slime::transport::soft {

class SoftEndpoint;

// State that a port shares with its endpoints and posted tasks. Thread: the loop, except where a
// function says otherwise.
class PortState final : private Deferred, public std::enable_shared_from_this<PortState> {
 public:
  PortState(std::shared_ptr<Loop> loop, std::shared_ptr<DeviceState> device, const PortOptions& options);

  const std::shared_ptr<DeviceState> device;
  const std::shared_ptr<SoftPool> pool;
  BulkPace pace;

  // Returns the loop; null after the port has ended. Thread: any.
  [[nodiscard]] std::shared_ptr<Loop> loop() const;
  // Resets the endpoints that have posted operations on the region. On the loop's thread this is
  // done at once, on another thread the loop does it later. Thread: any.
  void reset_users(std::shared_ptr<RegionRecord> record);

  void add(SoftEndpoint& endpoint) { endpoints_.push_back(&endpoint); }
  void remove(SoftEndpoint& endpoint);
  // Queues the endpoint: one turn of the loop calls run() of all queued endpoints. Does not wake a
  // sleeping loop, so that turn may come only when the loop has other work. Loop::hurry() makes it
  // come at once.
  void schedule(SoftEndpoint& endpoint);
  void shut();
  [[nodiscard]] std::size_t endpoints() const { return endpoints_.size(); }
  [[nodiscard]] PortCounters counters() const;

 private:
  void run_deferred() noexcept override;

  mutable Mutex mutex_;  // locked to set loop_ (on the loop only), and to read it on other threads
  std::shared_ptr<Loop> loop_;
  std::vector<SoftEndpoint*> endpoints_;
  std::vector<SoftEndpoint*> scheduled_;
  std::vector<SoftEndpoint*> running_;
  EndpointCounters gone_;  // counters of ended endpoints
};

class SoftPort final : public Port {
 public:
  SoftPort(std::shared_ptr<PortState> state, WireFactory factory)
      : state_(std::move(state)), factory_(std::move(factory)) {}
  ~SoftPort() override { state_->shut(); }

  Result<std::unique_ptr<PendingEndpoint>> prepare() override;
  [[nodiscard]] std::size_t endpoints() const override { return state_->endpoints(); }
  [[nodiscard]] std::uint32_t free_slots() const override { return state_->pool->unreserved(); }
  [[nodiscard]] PortCounters counters() const override { return state_->counters(); }

 private:
  const std::shared_ptr<PortState> state_;
  WireFactory factory_;
};

}  // namespace slime::transport::soft
