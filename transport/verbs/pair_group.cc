#include "transport/verbs/pair_group.h"

#include <algorithm>
#include <utility>

#include "transport/verbs/endpoint.h"
#include "transport/verbs/port.h"

namespace slime::transport::verbs {

PairGroup::PairGroup(std::shared_ptr<PortState> port, Handle place, std::shared_ptr<CreditAccount> account,
                     std::vector<std::shared_ptr<QueuePair>> queue_pairs, VerbsEndpoint& endpoint)
    : port_(std::move(port)),
      place_(place),
      account_(std::move(account)),
      queue_pairs_(std::move(queue_pairs)),
      last_received_(queue_pairs_.size()),
      endpoint_(&endpoint) {}

// Runs `work` on another thread, then `done` on the loop. Skips `done` if leave_now() or drop() was
// called meanwhile.
void PairGroup::start(Step step, Task work, UniqueFunction<void(PairGroup&)> done) {
  step_ = step;
  {
    const MutexLock lock(mutex_);
    working_ = true;
  }
  const std::shared_ptr<PairGroup> self = shared_from_this();
  port_->off_loop(
      [self, work = std::move(work)]() mutable {
        work();
        work = Task();  // releases the queue pairs that `work` holds
        const MutexLock lock(self->mutex_);
        self->working_ = false;
        self->rested_.notify_all();
      },
      [self, step, done = std::move(done)]() mutable {
        if (self->step_ == step) done(*self);
      });
}

void PairGroup::wait_for_step() {
  const MutexLock lock(mutex_);
  rested_.wait(mutex_, [this]() SLIME_REQUIRES(mutex_) { return !working_; });
}

void PairGroup::connect(std::vector<QueuePairRoute> routes) {
  const auto outcome = std::make_shared<Status>();
  start(
      Step::kConnecting,
      [pairs = queue_pairs_, routes = std::move(routes), outcome] {
        for (std::size_t i = 0; i < pairs.size() && outcome->ok(); ++i)
          *outcome = pairs[i]->connect(routes[i]);
      },
      [outcome](PairGroup& group) {
        group.step_ = Step::kIdle;
        if (group.leaving_) return group.fail();
        if (group.endpoint_ != nullptr) group.endpoint_->on_connected(*outcome);
      });
}

// ----------------------------------------------------------------------------------------- the end

void PairGroup::leave(Nanos flush) {
  if (std::exchange(leaving_, true)) return;
  flush_by_ = deadline_after(port_->users_loop()->now(), flush);
  if (step_ == Step::kIdle) fail();
}

void PairGroup::hurry() {
  if (gone()) return;
  flush_by_ = std::min(flush_by_, port_->users_loop()->now());
  check();
}

void PairGroup::fail() {
  start(
      Step::kFailing,
      [pairs = queue_pairs_] {
        for (const std::shared_ptr<QueuePair>& pair : pairs) pair->fail();
      },
      [](PairGroup& group) { group.on_failed(); });
}

void PairGroup::on_failed() {
  step_ = Step::kFlushing;
  last_receive_by_ = deadline_after(port_->users_loop()->now(), limits::kLastReceiveBound);
  if (endpoint_ != nullptr) endpoint_->on_pairs_failed();
  check();
}

void PairGroup::on_last_receive(std::uint32_t queue_pair) {
  last_received_[queue_pair] = true;
  check();
}

bool PairGroup::flushed() const {
  const TimePoint now = port_->users_loop()->now();
  const bool worked = endpoint_ == nullptr || endpoint_->drained() || now >= flush_by_;
  if (!worked || now >= last_receive_by_ || port_->lost()) return worked;
  for (std::size_t i = 0; i < queue_pairs_.size(); ++i) {
    if (queue_pairs_[i]->receives() && !last_received_[i]) return false;
  }
  return true;
}

void PairGroup::check() {
  if (step_ != Step::kFlushing) return;
  if (flushed()) return destroy();
  arm();
}

void PairGroup::arm() {
  const std::shared_ptr<Loop> loop = port_->users_loop();
  const TimePoint now = loop->now();
  TimePoint next = kNever;
  for (const TimePoint due : {flush_by_, last_receive_by_}) {
    if (due > now) next = std::min(next, due);
  }
  loop->cancel_timer(timer_);
  timer_ = loop->add_timer(next, [this] {
    timer_ = TimerId{};
    check();
  });
}

// Makes the endpoint release the queue pairs, and takes over its work requests and send buffers
// that are still at the device.
void PairGroup::take_leave() {
  if (const std::shared_ptr<Loop> loop = port_->users_loop()) loop->cancel_timer(timer_);
  // Polls all completions before the queue pairs are destroyed, because some drivers then drop the
  // completions, and receive slots with them. No completions follow the event of the last receive.
  port_->stash_completions();
  if (endpoint_ != nullptr) unpolled_ = endpoint_->leave_pairs(buffers_);
}

void PairGroup::destroy() {
  const std::shared_ptr<PairGroup> keep = shared_from_this();
  take_leave();
  start(
      Step::kDestroying, [pairs = std::exchange(queue_pairs_, {})]() mutable { pairs.clear(); },
      [](PairGroup& group) { group.on_gone(); });
}

void PairGroup::leave_now() {
  if (gone()) return;
  const std::shared_ptr<PairGroup> keep = shared_from_this();
  leaving_ = true;
  wait_for_step();
  if (step_ != Step::kDestroying) {
    for (const std::shared_ptr<QueuePair>& pair : queue_pairs_) pair->fail();
    take_leave();
    queue_pairs_.clear();
  }
  on_gone();
}

void PairGroup::on_gone() {
  const std::shared_ptr<PairGroup> keep = shared_from_this();
  step_ = Step::kGone;
  port_->detach(*this, account_, std::exchange(unpolled_, 0));
  for (const std::uint32_t buffer : std::exchange(buffers_, {})) port_->give_buffer(buffer);
  if (endpoint_ != nullptr) endpoint_->on_pairs_gone();
}

void PairGroup::disown() {
  if (gone()) return;
  if (step_ != Step::kDestroying) unpolled_ = endpoint_->leave_pairs(buffers_);
  endpoint_ = nullptr;
  port_->keep(shared_from_this(), *account_);
  leave(Nanos::zero());
  check();
}

void PairGroup::drop() {
  const std::shared_ptr<PairGroup> keep = shared_from_this();
  if (const std::shared_ptr<Loop> loop = port_->users_loop()) loop->cancel_timer(timer_);
  step_ = Step::kGone;
  account_->owner = nullptr;
  if (queue_pairs_.empty()) return;
  port_->off_loop([pairs = std::exchange(queue_pairs_, {})]() mutable { pairs.clear(); }, {});
}

}  // namespace slime::transport::verbs
