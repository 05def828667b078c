#include "transport/verbs/port.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/reaper.h"
#include "base/str.h"
#include "transport/verbs/endpoint.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/work_id.h"

namespace slime::transport::verbs {

// ----------------------------------------------------------------------------- opening and the end

Result<std::shared_ptr<PortState>> PortState::make(std::shared_ptr<DeviceState> device,
                                                   std::shared_ptr<Loop> loop, const PortOptions& options) {
  SLIME_TRY(options.validate());
  std::shared_ptr<PortState> state(new PortState(std::move(device), std::move(loop), options));
  SLIME_TRY(state->open());
  return state;
}

PortState::PortState(std::shared_ptr<DeviceState> device, std::shared_ptr<Loop> loop,
                     const PortOptions& options)
    : device_(std::move(device)),
      context_(device_->context()),
      options_(options),
      loop_(std::move(loop)),
      places_(limits::kMaxPortEndpoints) {}

Status PortState::open() {
  auto queues = PortQueues::create(context_, options_);
  if (!queues) return std::move(queues).error();
  queues_ = std::move(*queues);
  budget_ = WorkBudget(queues_->work_requests());
  auto pool = PostedPool::create(loop_, context_, queues_->srq(), options_);
  if (!pool) return std::move(pool).error();
  pool_ = std::move(*pool);
  auto words = CreditWords::create(context_, limits::kMaxPortEndpoints);
  if (!words) return std::move(words).error();
  words_ = std::move(*words);
  staging_ = std::make_unique<StagingPool>(context_, std::max(options_.slot_bytes, limits::kSlotBytes),
                                           limits::kSendBuffers);
  return {};
}

Status PortState::attach(Task lost) {
  lost_ = std::move(lost);
  device_->add_users(shared_from_this());
  in_place_ = true;
  Status watched = watch();
  if (!watched.ok()) shut();
  return watched;
}

Status PortState::watch() {
  SLIME_TRY(loop_->watch(queues_->channel()->fd, EPOLLIN, *this));
  watching_ = true;
  // All ports of a device watch its event descriptor. The port that reads an event tells the
  // others.
  watching_device_ = loop_->watch(context_->handle->async_fd, EPOLLIN, *this).ok();
  loop_->add_poller(*this);
  polled_ = true;
  return {};
}

void PortState::shut() {
  SLIME_CHECK(endpoints_.empty());  // the port outlives its endpoints
  const std::shared_ptr<Loop> loop = users_loop();
  if (loop == nullptr) return;
  if (polling_) kept_ = shared_from_this();
  if (std::exchange(in_place_, false)) device_->remove_users();
  lost_ = Task();
  if (polled_) loop->remove_poller(*this);
  if (watching_) loop->unwatch(queues_->channel()->fd);
  if (watching_device_) loop->unwatch(context_->handle->async_fd);
  loop->cancel_timer(receive_retry_);
  for (const std::shared_ptr<PairGroup>& group : std::exchange(leaving_, {})) group->drop();
  targets_.clear();
  for (const std::shared_ptr<CreditAccount>& account : retired_accounts_) account->owner = nullptr;
  if (pool_ != nullptr) pool_->shut();
  const MutexLock lock(mutex_);
  loop_.reset();
}

// Messages that are still held keep the memory of the pool, but not the port.
PortState::~PortState() {
  staging_.reset();
  words_.reset();
  queues_.reset();
}

std::shared_ptr<Loop> PortState::users_loop() const {
  const MutexLock lock(mutex_);
  return loop_;
}

Result<std::shared_ptr<QueuePair>> PortState::make_queue_pair(std::size_t number) {
  const bool for_data = number > 0;
  const std::uint32_t most = number == 0   ? limits::kMessageDepth
                             : number == 1 ? queues_->data_depth()
                                           : limits::kSideDepth;
  QueuePairShape shape;
  shape.cq = queues_->cq();
  shape.srq = queues_->srq();
  shape.depth = std::min(most, queues_->data_depth());
  shape.max_sge = for_data ? max_gather() : 1;
  shape.max_inline = static_cast<std::uint32_t>(context_->options.max_inline);
  // Allows as many inline bytes as fit into the space that an entry of the send queue has for its
  // list of local pieces.
  if (for_data) shape.max_inline = std::min<std::uint32_t>(shape.max_inline, max_gather() * sizeof(ibv_sge));
  return QueuePair::create(context_, shared_from_this(), shape);
}

void PortState::off_loop(Task work, Task done) {
  Task step = [self = shared_from_this(), work = std::move(work), done = std::move(done)]() mutable {
    work();
    work = Task();
    const std::shared_ptr<Loop> loop = done ? self->users_loop() : nullptr;
    if (loop == nullptr) return;
    loop->post([self = std::move(self), done = std::move(done)]() mutable {
      if (self->users_loop() != nullptr) done();
    });
  };
  // If no other thread takes the step, this thread runs it and waits for the device.
  if (!try_reap(step)) step();
}

// ------------------------------------------------------------------------------------------ places

Result<Handle> PortState::reserve() {
  if (!budget_.reserve()) {
    ++counters_.refused_endpoints;
    return Status(Code::kResourceExhausted,
                  str("the completion queue of ", context_->describe(), " has room for ", budget_.free(),
                      " more work requests, another peer needs ", limits::kReservedWorkRequests));
  }
  const std::optional<Handle> place = places_.insert(nullptr);
  if (!place) {
    budget_.unreserve();
    ++counters_.refused_endpoints;
    return Status(Code::kResourceExhausted,
                  str("this port has ", limits::kMaxPortEndpoints, " connections, its most"));
  }
  words_->clear(place->index);
  return *place;
}

void PortState::unreserve(Handle place) {
  places_.take(place);
  budget_.unreserve();
  wake(room_waiters_);
}

void PortState::attach(Handle place, VerbsEndpoint& endpoint) {
  *places_.find(place) = &endpoint;
  endpoints_.insert(&endpoint);
}

void PortState::attach(PairGroup& group, VerbsEndpoint& endpoint, std::uint32_t queue_pair,
                       std::uint32_t number) {
  targets_.add(number, {&endpoint, &group, queue_pair});
}

void PortState::stash_completions() {
  std::array<ibv_wc, limits::kPollBatch> completions;
  int n = 0;
  while (!dead_ &&
         (n = context_->functions.poll_cq(queues_->cq(), limits::kPollBatch, completions.data())) > 0)
    stash_.insert(stash_.end(), completions.begin(), completions.begin() + n);
  if (n < 0) die("ibv_poll_cq");
}

void PortState::detach(const PairGroup& group, std::shared_ptr<CreditAccount> account,
                       std::uint32_t unpolled) {
  SLIME_CHECK(places_.take(group.place()).has_value());
  targets_.remove(group);
  std::erase_if(leaving_, [&](const auto& leaving) { return leaving.get() == &group; });
  budget_.retire(unpolled);
  account->owner = &no_owner_;  // the account keeps its reserved slots until it is closed
  retired_accounts_.push_back(std::move(account));
  wake(room_waiters_);
}

void PortState::keep(std::shared_ptr<PairGroup> group, CreditAccount& account) {
  *places_.find(group->place()) = nullptr;
  targets_.drop_endpoint(*group);
  account.owner = &no_owner_;
  leaving_.push_back(std::move(group));
}

void PortState::forget(VerbsEndpoint& endpoint) {
  endpoints_.erase(&endpoint);
  counters_.endpoints += endpoint.counters();
  turns_.forget(endpoint);
  for (auto* list : {&room_waiters_, &buffer_waiters_})
    std::replace(list->begin(), list->end(), &endpoint, static_cast<VerbsEndpoint*>(nullptr));
}

void PortState::wake(std::vector<VerbsEndpoint*>& waiters) {
  std::vector<VerbsEndpoint*> woken = std::exchange(waiters, {});
  for (VerbsEndpoint* endpoint : woken) {
    if (endpoint != nullptr) endpoint->schedule();
  }
}

// ---------------------------------------------------------------------------------------- progress

bool PortState::post_freed() {
  Status posted = pool_->post_freed();
  if (posted.ok()) {
    receives_refused_ = false;
    return true;
  }
  const std::shared_ptr<Loop> loop = users_loop();
  if (loop != nullptr && !receive_retry_) {
    if (!std::exchange(receives_refused_, true))
      SLIME_LOG(LogLevel::kWarning, "verbs", context_->describe(), ": ", posted.text(), "; trying again");
    receive_retry_ = loop->add_timer(deadline_after(loop->now(), limits::kReceiveRetry), [this] {
      receive_retry_ = TimerId{};
      if (!post_receives()) return;
      places_.for_each([](Handle, VerbsEndpoint*& endpoint) {
        if (endpoint != nullptr) endpoint->schedule();
      });
    });
  }
  return false;
}

bool PortState::poll_once() noexcept {
  if (dead_ && turns_.empty()) return false;
  ++polls_;
  polling_ = true;
  const bool worked = poll();
  polling_ = false;
  const std::shared_ptr<PortState> last = std::move(kept_);
  return worked;
}

// Polls the completion queue and runs turns. A callback may drop the port: shut() keeps this state
// until the function returns.
bool PortState::poll() {
  bool found = !stash_.empty();
  found_.arrivals = found_.ends = 0;
  if (found) take_stash();
  std::array<ibv_wc, limits::kPollBatch> completions;
  for (int turn = 0; turn < limits::kPollsPerTurn && !dead_; ++turn) {
    const int n = context_->functions.poll_cq(queues_->cq(), limits::kPollBatch, completions.data());
    if (n < 0) {
      die("ibv_poll_cq");
      break;
    }
    if (n > 0) count_found({completions.data(), static_cast<std::size_t>(n)});
    found = found || n > 0;
    for (int i = 0; i < n; ++i) on_completion(completions[static_cast<std::size_t>(i)]);
    if (n < limits::kPollBatch) {
      if (stash_.empty() && (budget_.retired() > 0 || !retired_accounts_.empty())) release_retired();
      break;
    }
  }
  if (turns_.empty()) return found;
  // Completions are handled before turns that are not urgent: those can wait until the peer works
  // on its next request.
  if (!turns_.due(found)) return true;
  turns_.run();
  post_receives();
  return true;
}

void PortState::take_stash() {
  const std::vector<ibv_wc> completions = std::exchange(stash_, {});
  count_found(completions);
  for (const ibv_wc& completion : completions) on_completion(completion);
}

void PortState::release_retired() {
  for (const std::shared_ptr<CreditAccount>& account : std::exchange(retired_accounts_, {}))
    pool_->close(*account);
  // Posts the receives that ended queue pairs have given back. The endpoints that would post them
  // may have ended, too.
  post_receives();
  if (budget_.retired() == 0) return;
  budget_.release_retired();
  wake(room_waiters_);
}

bool PortState::arm() noexcept {
  if (!turns_.empty() || !stash_.empty()) return false;
  if (!armed_) {
    if (dead_) return true;
    if (context_->functions.req_notify_cq(queues_->cq(), 0) != 0) {
      die("ibv_req_notify_cq");
      return false;
    }
    armed_ = true;
    // Completions that came before req_notify_cq() cause no event, so polls once more.
    if (poll_once()) return false;
  }
  return true;
}

void PortState::on_fd_events(std::uint32_t) noexcept {
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  while (context_->functions.get_cq_event(queues_->channel(), &cq, &user) == 0) {
    context_->functions.ack_cq_events(cq, 1);
    armed_ = false;
    ++counters_.wakeups;
  }
  read_device_events();
}

void PortState::count_found(std::span<const ibv_wc> completions) {
  for (const ibv_wc& completion : completions)
    ++((completion.wr_id & kReceiveBit) != 0 ? found_.arrivals : found_.ends);
}

void PortState::on_completion(const ibv_wc& completion) {
  ++counters_.completions;
  if ((completion.wr_id & kReceiveBit) != 0) return on_receive(completion);
  const WorkId id = WorkId::unpack(completion.wr_id);
  const std::optional<Handle> place = places_.handle_at(id.index);
  VerbsEndpoint* const endpoint = place && (place->generation & WorkId::kGenerationMask) == id.generation
                                      ? *places_.find(*place)
                                      : nullptr;
  if (endpoint == nullptr || !endpoint->on_sent(id, completion)) ++counters_.stale_completions;
}

void PortState::on_receive(const ibv_wc& completion) {
  ReceiveSlot* slot = pool_->slot(static_cast<std::uint32_t>(completion.wr_id));
  if (slot == nullptr) return broken(Status(Code::kInternal, "a completion names no receive slot"));
  const ReceiveTargets::Target* target = targets_.find(completion.qp_num);
  if (target == nullptr) ++counters_.stale_completions;
  if (target == nullptr || target->endpoint == nullptr) return pool_->put_back(*slot);
  target->endpoint->on_received(target->queue_pair, completion, *slot);
}

PortCounters PortState::counters() const {
  PortCounters out = counters_;
  for (const VerbsEndpoint* endpoint : endpoints_) out.endpoints += endpoint->counters();
  out.receives_posted = pool_->posts();
  return out;
}

// -------------------------------------------------------------------------- what happens to a port

// Called when `call` failed for good: the port stops polling, and its endpoints are reset and end
// by their time bounds.
void PortState::die(std::string_view call) {
  if (std::exchange(dead_, true)) return;
  const Status reason(Code::kUnavailable,
                      str(call, " failed on ", context_->describe(), ": the device is gone"));
  device_->lose(*context_, reason);
  broken(reason);
  if (lost_) lost_();
}

void PortState::broken(const Status& reason) {
  places_.for_each([&](Handle, VerbsEndpoint*& endpoint) {
    if (endpoint != nullptr) endpoint->reset(reason);
  });
}

void PortState::reset_users(const RegionUses* uses) {
  const std::shared_ptr<Loop> loop = users_loop();
  if (loop == nullptr) return;
  // A caller on the loop, which closes a region, relies on the reset being done when this function
  // returns. Callers on other threads wait until the uses have ended.
  const bool now = loop->in_loop();
  loop->dispatch([self = shared_from_this(), uses, now] {
    self->places_.for_each([&](Handle, VerbsEndpoint*& endpoint) {
      if (endpoint != nullptr) endpoint->reset_if_using(uses, now);
    });
  });
}

void PortState::read_device_events() {
  if (!watching_device_) return;
  ibv_async_event event{};
  errno = 0;
  while (context_->functions.get_async_event(context_->handle, &event) == 0) {
    std::uint32_t number = 0;
    switch (event.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_PATH_MIG_ERR:
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        number = event.element.qp->qp_num;
        break;
      default:
        break;
    }
    device_->tell_event(event.event_type, number);
    // Acknowledges the event only now: until then the queue pair is not destroyed, so its number
    // cannot name another queue pair while the event is passed on.
    context_->functions.ack_async_event(&event);
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == 0) return;
  // Stops watching a descriptor that always fails, because it would stay readable for ever.
  watching_device_ = false;
  if (const std::shared_ptr<Loop> loop = users_loop()) loop->unwatch(context_->handle->async_fd);
}

void PortState::on_device_event(ibv_event_type type, std::uint32_t queue_pair) {
  const std::shared_ptr<Loop> loop = users_loop();
  if (loop == nullptr) return;
  loop->post([self = shared_from_this(), type, queue_pair] { self->handle_event(type, queue_pair); });
}

void PortState::handle_event(ibv_event_type type, std::uint32_t queue_pair) {
  switch (type) {
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
      SLIME_LOG(LogLevel::kError, "verbs", context_->describe(), ": ", event_name(type));
      broken(Status(Code::kUnavailable, str(context_->describe(), " reported: ", event_name(type))));
      if (type == IBV_EVENT_DEVICE_FATAL && lost_) lost_();
      return;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR: {
      const ReceiveTargets::Target* target = targets_.find(queue_pair);
      if (target != nullptr && target->endpoint != nullptr)
        target->endpoint->reset(
            Status(Code::kUnavailable, str(context_->describe(), " reported: ", event_name(type))));
      return;
    }
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      if (const ReceiveTargets::Target* target = targets_.find(queue_pair))
        target->group->on_last_receive(target->queue_pair);
      return;
    default:
      return;  // DeviceState queries ports and GIDs again
  }
}

}  // namespace slime::transport::verbs
