#pragma once

#include <memory>
#include <unordered_set>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "transport/provider.h"
#include "transport/verbs/buffers.h"
#include "transport/verbs/chain.h"
#include "transport/verbs/device.h"
#include "transport/verbs/pair_group.h"
#include "transport/verbs/port_queues.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/receive_targets.h"
#include "transport/verbs/regions.h"
#include "transport/verbs/turn_queue.h"
#include "transport/verbs/work_budget.h"

namespace slime::transport::verbs {

class VerbsEndpoint;

// A port, as its endpoints and its posted tasks share it: the completion queue, the shared receive
// queue with its slots, the send buffers. Thread: the loop, unless a function says otherwise.
//
// The completion queue never overflows: receives that are posted or not polled never exceed the
// slots, and work requests that are posted and not polled never exceed the rest of its entries
// (WorkBudget).
class PortState final : public RegionUsers,
                        private Poller,
                        private FdHandler,
                        public std::enable_shared_from_this<PortState> {
 public:
  // Makes queues and buffers, for which drivers need some time. Thread: any.
  static Result<std::shared_ptr<PortState>> make(std::shared_ptr<DeviceState> device,
                                                 std::shared_ptr<Loop> loop, const PortOptions& options);
  // Makes the loop poll the port; calls `lost` once the device failed for good. After an error the
  // port is shut.
  Status attach(Task lost);
  ~PortState() override;

  // ---- for endpoints
  [[nodiscard]] const std::shared_ptr<DeviceState>& device() const { return device_; }
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }
  [[nodiscard]] PostedPool& pool() { return *pool_; }
  [[nodiscard]] StagingPool& staging() { return *staging_; }
  [[nodiscard]] CreditWords& words() { return *words_; }
  // Most local pieces of one write, and of one read.
  [[nodiscard]] std::uint32_t max_gather() const { return queues_->max_gather(); }
  [[nodiscard]] std::uint32_t max_scatter() const { return queues_->max_scatter(); }
  // Returns how the adapter repeats packets that a peer does not acknowledge.
  [[nodiscard]] RetryPolicy retries() const {
    return retries_for(pool_->options().outage_tolerated, context_->options.timeout,
                       context_->options.retry_count);
  }
  // Returns the number of polls of the completion queue so far.
  [[nodiscard]] std::uint64_t polls() const { return polls_; }
  // Makes a queue pair in INIT: number 0 is for messages, the others for data. Thread: any.
  [[nodiscard]] Result<std::shared_ptr<QueuePair>> make_queue_pair(std::size_t number);
  // Runs `work` on another thread, and then `done`, if there is one, on the loop in a later turn,
  // unless the port is shut by then. Keeps the port's queues until then. Thread: any.
  void off_loop(Task work, Task done);
  // Run the endpoint when the current completions are handled, or in a later turn; until then the
  // loop does not block. Work that is not urgent waits until nothing arrives, or for a few polls.
  void schedule(VerbsEndpoint& endpoint) { turns_.add(endpoint); }
  void hurry() { turns_.hurry(); }
  // Returns the chain of the port, for the endpoint that posts now.
  Chain& empty_chain() {
    chain_.clear();
    return chain_;
  }
  // Posts slots that were freed. Returns false if some could not be posted: then nothing may be
  // promised.
  bool post_receives() { return pool_->all_posted() || post_freed(); }

  // ---- places for endpoints
  // Takes a place, with its reserved work requests. kResourceExhausted names what is missing.
  Result<Handle> reserve();
  void unreserve(Handle place);
  void attach(Handle place, VerbsEndpoint& endpoint);
  void attach(PairGroup& group, VerbsEndpoint& endpoint, std::uint32_t queue_pair, std::uint32_t number);
  // Takes all completions out of the queue, to be handled in a later turn.
  void stash_completions();
  // Call when the group's queue pairs are destroyed. `unpolled` of its work requests, and slots of
  // its account, may still have completions in the queue: they are given back once the queue was
  // seen empty.
  void detach(const PairGroup& group, std::shared_ptr<CreditAccount> account, std::uint32_t unpolled);
  // Call when the endpoint of the group has ended before its queue pairs.
  void keep(std::shared_ptr<PairGroup> group, CreditAccount& account);
  // Returns whether the device gives nothing back any more.
  [[nodiscard]] bool lost() const { return dead_ || context_->lost(); }
  // Call when the endpoint is being destroyed.
  void forget(VerbsEndpoint& endpoint);
  // Returns how many of `wanted` work requests may be posted by an endpoint that has `in_flight`.
  // 0: the endpoint runs when there is room.
  std::uint32_t may_post(VerbsEndpoint& endpoint, std::uint32_t in_flight, std::uint32_t wanted) {
    const std::uint32_t most = budget_.may_post(in_flight, wanted);
    if (most == 0 && wanted > 0 && (room_waiters_.empty() || room_waiters_.back() != &endpoint))
      room_waiters_.push_back(&endpoint);
    return most;
  }
  void took(std::uint32_t in_flight_before, std::uint32_t count) { budget_.took(in_flight_before, count); }
  void gave_back(std::uint32_t in_flight_before, std::uint32_t count) {
    budget_.gave_back(in_flight_before, count);
    if (!room_waiters_.empty()) wake(room_waiters_);
  }
  // Runs the endpoint once a send buffer is free.
  void wait_for_buffer(VerbsEndpoint& endpoint) { buffer_waiters_.push_back(&endpoint); }
  void give_buffer(std::uint32_t index) {
    staging_->give(index);
    if (!buffer_waiters_.empty()) wake(buffer_waiters_);
  }

  // ---- for the port
  Result<std::unique_ptr<PendingEndpoint>> prepare(std::shared_ptr<PortState> self);
  [[nodiscard]] std::size_t endpoints() const { return endpoints_.size(); }
  // Returns whether there are no endpoints, and their queue pairs are gone.
  [[nodiscard]] bool idle() const { return endpoints_.empty() && leaving_.empty(); }
  [[nodiscard]] PortCounters counters() const;
  void shut();

  // ---- RegionUsers, any thread
  void reset_users(const RegionUses* uses) override;
  [[nodiscard]] std::shared_ptr<Loop> users_loop() const override;
  void on_device_event(ibv_event_type type, std::uint32_t queue_pair) override;

 private:
  // Owner of the accounts of endpoints that have ended.
  class NoOwner final : public CreditOwner {
    void on_slot_free() noexcept override {}
  };

  PortState(std::shared_ptr<DeviceState> device, std::shared_ptr<Loop> loop, const PortOptions& options);
  Status open();
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
  void release_retired();
  void wake(std::vector<VerbsEndpoint*>& waiters);
  void broken(const Status& reason);
  void die(std::string_view call);
  void take_stash();

  const std::shared_ptr<DeviceState> device_;
  const std::shared_ptr<Context> context_;
  const PortOptions options_;
  mutable Mutex mutex_;  // guards loop_
  std::shared_ptr<Loop> loop_;

  std::unique_ptr<PortQueues> queues_;
  std::shared_ptr<PostedPool> pool_;
  std::unique_ptr<StagingPool> staging_;
  std::unique_ptr<CreditWords> words_;

  SlotMap<VerbsEndpoint*> places_;
  ReceiveTargets targets_;
  std::unordered_set<VerbsEndpoint*> endpoints_;     // not destroyed
  std::vector<std::shared_ptr<PairGroup>> leaving_;  // of endpoints that have ended
  WorkBudget budget_{0};                             // set once the queues are made
  TurnQueue<VerbsEndpoint> turns_;
  std::vector<VerbsEndpoint*> room_waiters_;
  std::vector<VerbsEndpoint*> buffer_waiters_;
  TimerId receive_retry_;
  PortCounters counters_;  // `endpoints`: those that have ended
  std::uint64_t polls_ = 0;
  bool receives_refused_ = false;  // and logged
  std::vector<ibv_wc> stash_;
  Chain chain_;
  NoOwner no_owner_;
  std::vector<std::shared_ptr<CreditAccount>> retired_accounts_;
  bool polling_ = false;
  std::shared_ptr<PortState> kept_;  // the port itself, while it is polled
  bool dead_ = false;                // the device does not answer any more
  bool armed_ = false;
  bool polled_ = false;    // the loop polls the port
  bool watching_ = false;  // the channel
  bool watching_device_ = false;
  bool in_place_ = false;  // the device counts this port among its users
  Task lost_;
};

}  // namespace slime::transport::verbs
