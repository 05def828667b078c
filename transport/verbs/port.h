#pragma once

#include <memory>
#include <span>
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

// State of a port, which its endpoints and its posted tasks share: the completion queue, the shared
// receive queue with its slots, the send buffers. Thread: the loop, unless a function says
// otherwise.
//
// The completion queue never overflows. Receives that are posted or not yet polled never exceed the
// number of slots. Work requests that are posted and not yet polled never exceed the other entries
// of the queue (WorkBudget).
class PortState final : public RegionUsers,
                        private Poller,
                        private FdHandler,
                        public std::enable_shared_from_this<PortState> {
 public:
  // Makes the queues and buffers of a port, for which drivers need some time. Thread: any.
  static Result<std::shared_ptr<PortState>> make(std::shared_ptr<DeviceState> device,
                                                 std::shared_ptr<Loop> loop, const PortOptions& options);
  // Makes the loop poll the port. Calls `lost` when the device has failed for good. If attach()
  // returns an error, the port is shut.
  Status attach(Task lost);
  ~PortState() override;

  // ---- for endpoints
  [[nodiscard]] const std::shared_ptr<DeviceState>& device() const { return device_; }
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }
  [[nodiscard]] PostedPool& pool() { return *pool_; }
  [[nodiscard]] StagingPool& staging() { return *staging_; }
  [[nodiscard]] CreditWords& words() { return *words_; }
  // max_gather() returns the most local pieces of one write; max_scatter(), of one read.
  [[nodiscard]] std::uint32_t max_gather() const { return queues_->max_gather(); }
  [[nodiscard]] std::uint32_t max_scatter() const { return queues_->max_scatter(); }
  // Returns how the adapter repeats packets that a peer does not acknowledge.
  [[nodiscard]] RetryPolicy retries() const {
    return retries_for(pool_->options().outage_tolerated, context_->options.timeout,
                       context_->options.retry_count);
  }
  // Returns the number of polls of the completion queue so far.
  [[nodiscard]] std::uint64_t polls() const { return polls_; }
  // Return whether the poll whose completions are being handled found only one arrival, or only one
  // completion of own work. A post that follows from it has no others to share a doorbell with. An
  // answer and the completion of its request often come together, so they count apart.
  [[nodiscard]] bool found_one_arrival() const { return found_.arrivals == 1; }
  [[nodiscard]] bool found_one_end() const { return found_.ends == 1; }
  // Makes a queue pair in the state INIT: number 0 for messages, any other number for data. Thread:
  // any.
  [[nodiscard]] Result<std::shared_ptr<QueuePair>> make_queue_pair(std::size_t number);
  // Runs `work` on another thread, then `done` (may be empty) on the loop in a later turn. Skips
  // `done` if the port was shut meanwhile. Keeps the port's queues alive until then. Thread: any.
  void off_loop(Task work, Task done);
  // schedule() makes the endpoint run in a later turn: when a poll finds nothing, or after a few
  // polls. hurry() makes the waiting turns run as soon as the current completions are handled. The
  // loop does not block while a turn waits.
  void schedule(VerbsEndpoint& endpoint) { turns_.add(endpoint); }
  void hurry() { turns_.hurry(); }
  // Returns the port's only chain, empty, for the endpoint that posts now.
  Chain& empty_chain() {
    chain_.clear();
    return chain_;
  }
  // Posts the slots that were freed. Returns false if some could not be posted: then the caller
  // must grant no credits.
  bool post_receives() { return pool_->all_posted() || post_freed(); }

  // ---- places for endpoints
  // Takes a place for an endpoint, with its reserve of work requests. The text of
  // kResourceExhausted names what is used up.
  Result<Handle> reserve();
  void unreserve(Handle place);
  void attach(Handle place, VerbsEndpoint& endpoint);
  void attach(PairGroup& group, VerbsEndpoint& endpoint, std::uint32_t queue_pair, std::uint32_t number);
  // Takes all completions out of the completion queue now, to be handled in a later turn.
  void stash_completions();
  // Call when the queue pairs of `group` are destroyed. `unpolled` work requests of the group, and
  // slots of its account, may still have completions in the completion queue. The port gives them
  // back once it has seen the queue empty.
  void detach(const PairGroup& group, std::shared_ptr<CreditAccount> account, std::uint32_t unpolled);
  // Keeps `group` until its queue pairs have ended. Call when its endpoint has ended before them.
  void keep(std::shared_ptr<PairGroup> group, CreditAccount& account);
  // Returns whether the device is lost, and so gives back no work requests any more.
  [[nodiscard]] bool lost() const { return dead_ || context_->lost(); }
  // Call when the endpoint is being destroyed.
  void forget(VerbsEndpoint& endpoint);
  // Returns how many of `wanted` work requests may be posted by an endpoint that has `in_flight`.
  // If that is 0, the port runs the endpoint once there is room.
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
  // Makes the port run the endpoint once a send buffer is free.
  void wait_for_buffer(VerbsEndpoint& endpoint) { buffer_waiters_.push_back(&endpoint); }
  void give_buffer(std::uint32_t index) {
    staging_->give(index);
    if (!buffer_waiters_.empty()) wake(buffer_waiters_);
  }

  // ---- for the port
  Result<std::unique_ptr<PendingEndpoint>> prepare(std::shared_ptr<PortState> self);
  [[nodiscard]] std::size_t endpoints() const { return endpoints_.size(); }
  // Returns whether the port has no endpoints, and the queue pairs of ended endpoints are gone.
  [[nodiscard]] bool idle() const { return endpoints_.empty() && leaving_.empty(); }
  [[nodiscard]] PortCounters counters() const;
  void shut();

  // ---- RegionUsers, any thread
  void reset_users(const RegionUses* uses) override;
  [[nodiscard]] std::shared_ptr<Loop> users_loop() const override;
  void on_device_event(ibv_event_type type, std::uint32_t queue_pair) override;

 private:
  // Stands in as the owner of the credit accounts of endpoints that have ended.
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
  void count_found(std::span<const ibv_wc> completions);
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
  // in the poll whose completions are being handled
  struct Found {
    int arrivals = 0;
    int ends = 0;  // of own work
  };
  Found found_;
  std::shared_ptr<PortState> kept_;  // the port itself, while it is polled
  bool dead_ = false;                // the device does not answer any more
  bool armed_ = false;
  bool polled_ = false;    // the loop polls the port
  bool watching_ = false;  // the channel
  bool watching_device_ = false;
  bool in_place_ = false;  // DeviceState counts this port among its users
  Task lost_;
};

}  // namespace slime::transport::verbs
