#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/function.h"
#include "base/mutex.h"
#include "transport/loop.h"
#include "transport/receive_pool.h"
#include "transport/verbs/queue_pair.h"

namespace slime::transport::verbs {

class PortState;
class VerbsEndpoint;

// The queue pairs of one endpoint, from their connection to their destruction. The adapter takes
// milliseconds for each step, so the steps run on another thread, one after the other, and the loop
// is told when a step has ended.
//
//   connect() --> connected --- leave() ---> failing --> flushing --> destroying --> gone
//
// Flushing ends when the endpoint has all its work requests back, and the device has said of each
// queue pair that it gave back its last receive: the port would lose receives that a queue pair
// still has when it is destroyed. Both waits are bounded. If the endpoint is destroyed before the
// group is gone, the port keeps the group. Thread: the loop.
class PairGroup final : public std::enable_shared_from_this<PairGroup> {
 public:
  // `queue_pairs` are in the state INIT, the message queue pair first. `account` is closed after
  // the queue pairs are gone.
  PairGroup(std::shared_ptr<PortState> port, Handle place, std::shared_ptr<CreditAccount> account,
            std::vector<std::shared_ptr<QueuePair>> queue_pairs, VerbsEndpoint& endpoint);

  // Connects each queue pair by its route, then calls VerbsEndpoint::on_connected() with the
  // outcome.
  void connect(std::vector<QueuePairRoute> routes);
  // Begins to fail, flush and destroy the queue pairs. `flush`: longest wait for the endpoint's
  // work requests to come back. Idempotent.
  void leave(Nanos flush);
  // Ends the wait for the flush, because a caller waits until the endpoint's work has ended.
  void hurry();
  // Runs all steps up to the destruction before it returns, and so waits for the device.
  // Idempotent.
  void leave_now();
  // Checks whether the flush can end.
  void check();
  void on_last_receive(std::uint32_t queue_pair);
  // Forgets the endpoint, which is being destroyed. The device must have no operation of a user
  // then.
  void disown();
  // Destroys the queue pairs without waiting for a flush, because the port is being shut.
  void drop();

  [[nodiscard]] Handle place() const { return place_; }
  [[nodiscard]] bool gone() const { return step_ == Step::kGone; }

 private:
  enum class Step { kIdle, kConnecting, kFailing, kFlushing, kDestroying, kGone };

  void start(Step step, Task work, UniqueFunction<void(PairGroup&)> done);
  void wait_for_step();
  void fail();
  void on_failed();
  void take_leave();
  void destroy();
  void on_gone();
  void arm();
  [[nodiscard]] bool flushed() const;

  const std::shared_ptr<PortState> port_;
  const Handle place_;
  const std::shared_ptr<CreditAccount> account_;
  std::vector<std::shared_ptr<QueuePair>> queue_pairs_;
  std::vector<bool> last_received_;  // of each
  VerbsEndpoint* endpoint_;          // null: gone
  Step step_ = Step::kIdle;
  bool leaving_ = false;
  TimePoint flush_by_ = kNever;
  TimePoint last_receive_by_ = kNever;
  TimerId timer_;
  // The send buffers and the number of work requests that the endpoint left at the device.
  std::vector<std::uint32_t> buffers_;
  std::uint32_t unpolled_ = 0;

  Mutex mutex_;
  CondVar rested_;
  bool working_ SLIME_GUARDED_BY(mutex_) = false;  // another thread has the queue pairs
};

}  // namespace slime::transport::verbs
