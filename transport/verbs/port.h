#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/ids.h"
#include "transport/provider.h"
#include "transport/verbs/buffers.h"
#include "transport/verbs/chain.h"
#include "transport/verbs/device.h"
#include "transport/verbs/pair_group.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/regions.h"

namespace slime::transport::verbs {

class VerbsEndpoint;

// What a work request is called: which endpoint, which of its queue pairs, and where in its send queue. A
// completion of an endpoint that is gone never finds another one.
struct WorkId {
  std::uint32_t index = 0;       // of the endpoint; 20 bits
  std::uint32_t generation = 0;  // 15 bits of the handle's
  std::uint32_t queue_pair = 0;  // 4 bits
  std::uint32_t place = 0;       // 24 bits

  [[nodiscard]] std::uint64_t pack() const;
  static WorkId unpack(std::uint64_t id);
  static constexpr std::uint32_t kGenerationMask = (1U << 15) - 1;
};

inline std::uint64_t WorkId::pack() const {
  return std::uint64_t{generation & kGenerationMask} << 48 | std::uint64_t{index} << 28 |
         std::uint64_t{queue_pair} << 24 | (place & MessageNote::kMask);
}

inline WorkId WorkId::unpack(std::uint64_t id) {
  return {static_cast<std::uint32_t>(id >> 28) & 0xfffff,
          static_cast<std::uint32_t>(id >> 48) & kGenerationMask, static_cast<std::uint32_t>(id >> 24) & 0xf,
          static_cast<std::uint32_t>(id) & MessageNote::kMask};
}

// A port, as its endpoints and the tasks that it posted share it: the completion queue, the shared receive
// queue with its slots, the send buffers. Thread: the loop where nothing else is said.
//
// One completion queue for everything. It never overflows: receives that are posted or polled never exceed
// the slots, and work requests that are posted and not polled never exceed the rest of its entries, of which
// each endpoint reserves some when it connects.
class PortState final : public RegionUsers,
                        private Poller,
                        private FdHandler,
                        public std::enable_shared_from_this<PortState> {
 public:
  // Its queues and buffers, which drivers take a while to make. Any thread.
  static Result<std::shared_ptr<PortState>> make(std::shared_ptr<DeviceState> device,
                                                 std::shared_ptr<Loop> loop, const PortOptions& options);
  // Has the loop poll it; `lost` is called once the device failed for good. What it could not attach is shut.
  Status attach(Task lost);
  ~PortState() override;

  // ---- for endpoints
  [[nodiscard]] const std::shared_ptr<DeviceState>& device() const { return device_; }
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }
  [[nodiscard]] PostedPool& pool() { return *pool_; }
  [[nodiscard]] StagingPool& staging() { return *staging_; }
  [[nodiscard]] CreditWords& words() { return *words_; }
  // Local pieces of one write, and of one read.
  [[nodiscard]] std::uint32_t max_gather() const { return max_sge_; }
  [[nodiscard]] std::uint32_t max_scatter() const { return max_sge_read_; }
  // How the adapter repeats what a peer does not acknowledge.
  [[nodiscard]] RetryPolicy retries() const {
    return retries_for(pool_->options().outage_tolerated, context_->options.timeout,
                       context_->options.retry_count);
  }
  // Polls of the completion queue so far.
  [[nodiscard]] std::uint64_t polls() const { return polls_; }
  // Number 0 is for messages, the others for data. Any thread.
  [[nodiscard]] Result<std::shared_ptr<QueuePair>> make_queue_pair(std::size_t number);
  // Has `work` done on another thread, and then `done`, if there is one, on the loop in a later turn, unless
  // the port is shut by then. Keeps the port's queues for so long. Any thread.
  void off_loop(Task work, Task done);
  // Has endpoint.run() called, when the completions at hand are dealt with or in a later turn; until then the
  // loop does not block. What is not urgent waits until nothing comes, or for a few polls.
  void schedule(VerbsEndpoint& endpoint) { scheduled_.push_back(&endpoint); }
  void hurry() { urgent_ = true; }
  // For the endpoint that posts now.
  Chain& empty_chain() {
    chain_.clear();
    return chain_;
  }
  // False while slots that were freed could not be posted: nothing may be promised.
  bool post_receives() { return pool_->all_posted() || post_freed(); }

  // ---- places for endpoints
  // One place, with its reserved work requests; kResourceExhausted says what is short.
  Result<Handle> reserve();
  void unreserve(Handle place);
  void attach(Handle place, VerbsEndpoint& endpoint);
  void attach(PairGroup& group, VerbsEndpoint& endpoint, std::uint32_t queue_pair, std::uint32_t number);
  // Takes what the completion queue holds, to be dealt with in a later turn.
  void stash_completions();
  // Its queue pairs are destroyed. `unpolled` of its work requests, and slots of its account, may still have
  // completions in the queue: they are given back once it was seen empty.
  void detach(const PairGroup& group, std::shared_ptr<CreditAccount> account, std::uint32_t unpolled);
  // The endpoint is gone before its queue pairs are.
  void keep(std::shared_ptr<PairGroup> group, CreditAccount& account);
  // The device gives nothing back any more.
  [[nodiscard]] bool lost() const { return dead_ || context_->lost(); }
  // The endpoint is being destroyed.
  void forget(VerbsEndpoint& endpoint);
  // Work requests that an endpoint may post beyond `in_flight`; those beyond its reserve come from what all
  // share. 0: it is told by run() when there are some.
  std::uint32_t may_post(VerbsEndpoint& endpoint, std::uint32_t in_flight, std::uint32_t wanted) {
    const std::uint32_t own =
        limits::kReservedWorkRequests - std::min(in_flight, limits::kReservedWorkRequests);
    const std::uint32_t most = std::min(wanted, own + shared_free_);
    if (most == 0 && wanted > 0 && (room_waiters_.empty() || room_waiters_.back() != &endpoint))
      room_waiters_.push_back(&endpoint);
    return most;
  }
  void took(std::uint32_t in_flight_before, std::uint32_t count) {
    const std::uint32_t shared = from_shared(in_flight_before + count) - from_shared(in_flight_before);
    SLIME_CHECK(shared <= shared_free_);
    shared_free_ -= shared;
  }
  void gave_back(std::uint32_t in_flight_before, std::uint32_t count) {
    shared_free_ += from_shared(in_flight_before) - from_shared(in_flight_before - count);
    if (!room_waiters_.empty()) wake(room_waiters_);
  }
  // Has run() called once a send buffer is free.
  void wait_for_buffer(VerbsEndpoint& endpoint) { buffer_waiters_.push_back(&endpoint); }
  void give_buffer(std::uint32_t index) {
    staging_->give(index);
    if (!buffer_waiters_.empty()) wake(buffer_waiters_);
  }

  // ---- for the port
  Result<std::unique_ptr<PendingEndpoint>> prepare(std::shared_ptr<PortState> self);
  [[nodiscard]] std::size_t endpoints() const { return endpoints_.size(); }
  // Without endpoints, and their queue pairs are gone.
  [[nodiscard]] bool idle() const { return endpoints_.empty() && leaving_.empty(); }
  [[nodiscard]] PortCounters counters() const;
  void shut();

  // ---- RegionUsers, any thread
  void reset_users(const RegionUses* uses) override;
  [[nodiscard]] std::shared_ptr<Loop> users_loop() const override;
  void on_device_event(ibv_event_type type, std::uint32_t queue_pair) override;

 private:
  // Owns the accounts of endpoints that are gone.
  class Nobody final : public CreditOwner {
    void on_slot_free() noexcept override {}
  };
  struct Target {
    VerbsEndpoint* endpoint = nullptr;  // null: gone, and what comes is nobody's
    PairGroup* group = nullptr;
    std::uint32_t queue_pair = 0;
  };

  PortState(std::shared_ptr<DeviceState> device, std::shared_ptr<Loop> loop, const PortOptions& options);
  Status open();
  Status open_queues();
  Status watch();
  bool poll_once() noexcept override;
  bool poll();
  bool arm() noexcept override;
  void on_fd_events(std::uint32_t events) noexcept override;
  void read_device_events();
  void handle_event(ibv_event_type type, std::uint32_t queue_pair);
  void on_completion(const ibv_wc& completion);
  void on_receive(const ibv_wc& completion);
  bool post_freed();
  void run_scheduled();
  void release_retired();
  void wake(std::vector<VerbsEndpoint*>& waiters);
  void broken(const Status& reason);
  void die(std::string_view call);
  void take_stash();
  [[nodiscard]] static std::uint32_t from_shared(std::uint32_t in_flight) {
    return in_flight - std::min(in_flight, limits::kReservedWorkRequests);
  }

  const std::shared_ptr<DeviceState> device_;
  const std::shared_ptr<Context> context_;
  const PortOptions options_;
  mutable std::mutex mutex_;  // guards loop_
  std::shared_ptr<Loop> loop_;

  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  std::shared_ptr<PostedPool> pool_;
  std::unique_ptr<StagingPool> staging_;
  std::unique_ptr<CreditWords> words_;
  std::uint32_t data_depth_ = 0;
  std::uint32_t max_sge_ = 1;
  std::uint32_t max_sge_read_ = 1;

  SlotMap<VerbsEndpoint*> places_;
  std::unordered_map<std::uint32_t, Target> by_number_;
  std::uint32_t last_number_ = 0;
  const Target* last_target_ = nullptr;              // of last_number_, which mostly comes again
  std::unordered_set<VerbsEndpoint*> endpoints_;     // those that have ended but are not destroyed included
  std::vector<std::shared_ptr<PairGroup>> leaving_;  // of endpoints that are gone
  std::uint32_t shared_free_ = 0;                    // work requests that nobody reserved or took
  std::uint32_t retired_ = 0;  // of endpoints that are gone, until the queue was seen empty
  std::vector<VerbsEndpoint*> scheduled_;
  bool urgent_ = false;    // one of them has something to post
  int patient_polls_ = 0;  // since they were run
  std::vector<VerbsEndpoint*> running_;
  std::vector<VerbsEndpoint*> room_waiters_;
  std::vector<VerbsEndpoint*> buffer_waiters_;
  TimerId receive_retry_;
  PortCounters counters_;  // its endpoints': those that are gone
  std::uint64_t polls_ = 0;
  bool receives_refused_ = false;  // and logged
  std::vector<ibv_wc> stash_;
  Chain chain_;
  Nobody nobody_;
  std::vector<std::shared_ptr<CreditAccount>> retired_accounts_;
  bool polling_ = false;
  std::shared_ptr<PortState> kept_;  // dropped while it was polled
  bool dead_ = false;                // the device does not answer any more
  bool armed_ = false;
  bool polled_ = false;    // it is a poller of the loop
  bool watching_ = false;  // the channel
  bool watching_device_ = false;
  bool in_place_ = false;  // the device counts us
  Task lost_;
};

}  // namespace slime::transport::verbs
