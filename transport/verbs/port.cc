#include "transport/verbs/port.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"
#include "base/reaper.h"
#include "base/str.h"
#include "transport/verbs/endpoint.h"
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

// --------------------------------------------------------------------------------------- opening and the end

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
  SLIME_TRY(open_queues());
  auto pool = PostedPool::create(loop_, context_, srq_, options_);
  if (!pool) return std::move(pool).error();
  pool_ = std::move(*pool);
  auto words = CreditWords::create(context_, limits::kMaxPortEndpoints);
  if (!words) return std::move(words).error();
  words_ = std::move(*words);
  staging_ = std::make_unique<StagingPool>(context_, std::max(options_.slot_bytes, limits::kSlotBytes),
                                           limits::kSendBuffers);
  SLIME_TRY(make_nonblocking(channel_->fd));
  return make_nonblocking(context_->handle->async_fd);
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
  SLIME_TRY(loop_->watch(channel_->fd, EPOLLIN, *this));
  watching_ = true;
  // Every port of the device watches; whoever reads an event tells all.
  watching_device_ = loop_->watch(context_->handle->async_fd, EPOLLIN, *this).ok();
  loop_->add_poller(*this);
  polled_ = true;
  return {};
}

Status PortState::open_queues() {
  const Functions& f = context_->functions;
  const ibv_device_attr& device = context_->device;
  if (options_.pool_slots > static_cast<std::uint32_t>(device.max_srq_wr))
    return {Code::kInvalidArgument, str("pool_slots is ", options_.pool_slots, ", ",
                                        context_->selection.device, " takes at most ", device.max_srq_wr)};
  const auto entries = std::min<std::uint64_t>(std::uint64_t{options_.pool_slots} + limits::kPortWorkRequests,
                                               static_cast<std::uint64_t>(device.max_cqe));
  if (entries < options_.pool_slots + 4 * limits::kReservedWorkRequests)
    return {Code::kInvalidArgument, str("pool_slots is ", options_.pool_slots, ", a completion queue of ",
                                        context_->selection.device, " has at most ", device.max_cqe)};
  shared_free_ = static_cast<std::uint32_t>(entries - options_.pool_slots);
  channel_ = f.create_comp_channel(context_->handle);
  if (channel_ == nullptr) return call_error("ibv_create_comp_channel", errno);
  cq_ = f.create_cq(context_->handle, static_cast<int>(entries), nullptr, channel_, 0);
  if (cq_ == nullptr) return call_error(str("ibv_create_cq of ", entries, " entries"), errno, true);
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = options_.pool_slots;
  attributes.attr.max_sge = 1;
  srq_ = f.create_srq(context_->pd, &attributes);
  if (srq_ == nullptr)
    return call_error(str("ibv_create_srq of ", options_.pool_slots, " slots"), errno, true);
  data_depth_ = std::min({static_cast<std::uint32_t>(context_->options.send_queue_depth),
                          static_cast<std::uint32_t>(device.max_qp_wr), shared_free_ / 2});
  max_sge_ = static_cast<std::uint32_t>(std::clamp(device.max_sge, 1, int{limits::kGatherParts}));
  max_sge_read_ = static_cast<std::uint32_t>(std::clamp(device.max_sge_rd, 1, static_cast<int>(max_sge_)));
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
  if (watching_) loop->unwatch(channel_->fd);
  if (watching_device_) loop->unwatch(context_->handle->async_fd);
  loop->cancel_timer(receive_retry_);
  for (const std::shared_ptr<PairGroup>& group : std::exchange(leaving_, {})) group->drop();
  by_number_.clear();
  last_target_ = nullptr;
  for (const std::shared_ptr<CreditAccount>& account : retired_accounts_) account->owner = nullptr;
  if (pool_ != nullptr) pool_->shut();
  const std::lock_guard lock(mutex_);
  loop_.reset();
}

// Messages that are still held keep the pool's memory, nothing else.
PortState::~PortState() {
  const Functions& f = context_->functions;
  staging_.reset();
  words_.reset();
  if (srq_ != nullptr) f.destroy_srq(srq_);
  if (cq_ != nullptr) f.destroy_cq(cq_);
  if (channel_ != nullptr) f.destroy_comp_channel(channel_);
}

std::shared_ptr<Loop> PortState::users_loop() const {
  const std::lock_guard lock(mutex_);
  return loop_;
}

Result<std::shared_ptr<QueuePair>> PortState::make_queue_pair(std::size_t number) {
  const bool for_data = number > 0;
  const std::uint32_t most = number == 0   ? limits::kMessageDepth
                             : number == 1 ? data_depth_
                                           : limits::kSideDepth;
  QueuePairShape shape;
  shape.cq = cq_;
  shape.srq = srq_;
  shape.depth = std::min(most, data_depth_);
  shape.max_sge = for_data ? max_sge_ : 1;
  shape.max_inline = static_cast<std::uint32_t>(context_->options.max_inline);
  // As much as lies in an entry where the pieces would.
  if (for_data) shape.max_inline = std::min<std::uint32_t>(shape.max_inline, max_sge_ * sizeof(ibv_sge));
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
  // Without a thread the loop waits, as long as the device takes.
  if (!try_reap(step)) step();
}

// ------------------------------------------------------------------------------------------------- places

Result<Handle> PortState::reserve() {
  if (shared_free_ < limits::kReservedWorkRequests) {
    ++counters_.refused_endpoints;
    return Status(Code::kResourceExhausted,
                  str("the completion queue of ", context_->describe(), " has room for ", shared_free_,
                      " more work requests, another peer needs ", limits::kReservedWorkRequests));
  }
  const std::optional<Handle> place = places_.insert(nullptr);
  if (!place) {
    ++counters_.refused_endpoints;
    return Status(Code::kResourceExhausted,
                  str("this port has ", limits::kMaxPortEndpoints, " connections, its most"));
  }
  shared_free_ -= limits::kReservedWorkRequests;
  words_->clear(place->index);
  return *place;
}

void PortState::unreserve(Handle place) {
  places_.take(place);
  shared_free_ += limits::kReservedWorkRequests;
  wake(room_waiters_);
}

void PortState::attach(Handle place, VerbsEndpoint& endpoint) {
  *places_.find(place) = &endpoint;
  endpoints_.insert(&endpoint);
}

void PortState::attach(PairGroup& group, VerbsEndpoint& endpoint, std::uint32_t queue_pair,
                       std::uint32_t number) {
  by_number_[number] = {&endpoint, &group, queue_pair};
  last_target_ = nullptr;
}

void PortState::stash_completions() {
  std::array<ibv_wc, limits::kPollBatch> completions;
  int n = 0;
  while (!dead_ && (n = context_->functions.poll_cq(cq_, limits::kPollBatch, completions.data())) > 0)
    stash_.insert(stash_.end(), completions.begin(), completions.begin() + n);
  if (n < 0) die("ibv_poll_cq");
}

void PortState::detach(const PairGroup& group, std::shared_ptr<CreditAccount> account,
                       std::uint32_t unpolled) {
  SLIME_CHECK(places_.take(group.place()).has_value());
  // A number may be a new queue pair's by now.
  std::erase_if(by_number_, [&](const auto& entry) { return entry.second.group == &group; });
  last_target_ = nullptr;
  std::erase_if(leaving_, [&](const auto& leaving) { return leaving.get() == &group; });
  // What it took counts as taken until no completion of it can be in the queue.
  retired_ += unpolled;
  account->owner = &nobody_;  // its reserve stays until it is closed
  retired_accounts_.push_back(std::move(account));
  shared_free_ += limits::kReservedWorkRequests - std::min(unpolled, limits::kReservedWorkRequests);
  wake(room_waiters_);
}

void PortState::keep(std::shared_ptr<PairGroup> group, CreditAccount& account) {
  *places_.find(group->place()) = nullptr;
  for (auto& [number, target] : by_number_) {
    if (target.group == group.get()) target.endpoint = nullptr;
  }
  account.owner = &nobody_;
  leaving_.push_back(std::move(group));
}

void PortState::forget(VerbsEndpoint& endpoint) {
  endpoints_.erase(&endpoint);
  counters_.endpoints += endpoint.counters();
  for (auto* list : {&scheduled_, &running_, &room_waiters_, &buffer_waiters_})
    std::replace(list->begin(), list->end(), &endpoint, static_cast<VerbsEndpoint*>(nullptr));
}

void PortState::wake(std::vector<VerbsEndpoint*>& waiters) {
  std::vector<VerbsEndpoint*> woken = std::exchange(waiters, {});
  for (VerbsEndpoint* endpoint : woken) {
    if (endpoint != nullptr) endpoint->schedule();
  }
}

// ------------------------------------------------------------------------------------------------ progress

void PortState::run_scheduled() {
  urgent_ = false;
  patient_polls_ = 0;
  // What a callback schedules meanwhile runs in a later turn.
  running_.swap(scheduled_);
  // By index: a callback may destroy an endpoint, which clears its entry.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (running_[i] != nullptr) running_[i]->run();
  }
  running_.clear();
  post_receives();
}

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
  if (dead_ && scheduled_.empty()) return false;
  ++polls_;
  polling_ = true;
  const bool worked = poll();
  polling_ = false;
  const std::shared_ptr<PortState> last = std::move(kept_);
  return worked;
}

// A callback may drop the port: shut() keeps it until this returns.
bool PortState::poll() {
  bool found = !stash_.empty();
  if (found) take_stash();
  std::array<ibv_wc, limits::kPollBatch> completions;
  for (int turn = 0; turn < limits::kPollsPerTurn && !dead_; ++turn) {
    const int n = context_->functions.poll_cq(cq_, limits::kPollBatch, completions.data());
    if (n < 0) {
      die("ibv_poll_cq");
      break;
    }
    found = found || n > 0;
    for (int i = 0; i < n; ++i) on_completion(completions[static_cast<std::size_t>(i)]);
    if (n < limits::kPollBatch) {
      if (stash_.empty() && (retired_ > 0 || !retired_accounts_.empty())) release_retired();
      break;
    }
  }
  if (scheduled_.empty()) return found;
  // Whoever waited for what came goes first: housekeeping has time while the peer works on the next thing.
  if (found && !urgent_ && ++patient_polls_ < limits::kPatientPolls) return true;
  run_scheduled();
  return true;
}

void PortState::take_stash() {
  const std::vector<ibv_wc> completions = std::exchange(stash_, {});
  for (const ibv_wc& completion : completions) on_completion(completion);
}

void PortState::release_retired() {
  for (const std::shared_ptr<CreditAccount>& account : std::exchange(retired_accounts_, {}))
    pool_->close(*account);
  // What the queue pairs that are gone have given back; their endpoints may be gone, too.
  post_receives();
  if (retired_ == 0) return;
  // The reserve of these endpoints was given back without what they had taken of it.
  shared_free_ += std::exchange(retired_, 0);
  wake(room_waiters_);
}

bool PortState::arm() noexcept {
  if (!scheduled_.empty() || !stash_.empty()) return false;
  if (!armed_) {
    if (dead_) return true;
    if (context_->functions.req_notify_cq(cq_, 0) != 0) {
      die("ibv_req_notify_cq");
      return false;
    }
    armed_ = true;
    // What came before the request gives no event.
    if (poll_once()) return false;
  }
  return true;
}

void PortState::on_fd_events(std::uint32_t) noexcept {
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  while (context_->functions.get_cq_event(channel_, &cq, &user) == 0) {
    context_->functions.ack_cq_events(cq, 1);
    armed_ = false;
    ++counters_.wakeups;
  }
  read_device_events();
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
  if (last_target_ == nullptr || last_number_ != completion.qp_num) {
    const auto found = by_number_.find(completion.qp_num);
    if (found == by_number_.end()) {
      ++counters_.stale_completions;
      pool_->put_back(*slot);
      return;
    }
    last_number_ = completion.qp_num;
    last_target_ = &found->second;
  }
  if (last_target_->endpoint == nullptr) return pool_->put_back(*slot);
  last_target_->endpoint->on_received(last_target_->queue_pair, completion, *slot);
}

PortCounters PortState::counters() const {
  PortCounters out = counters_;
  for (const VerbsEndpoint* endpoint : endpoints_) out.endpoints += endpoint->counters();
  out.receives_posted = pool_->posts();
  return out;
}

// ------------------------------------------------------------------------------------ what happens to a port

// Nobody polls it again; the endpoints end by their bound.
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
  // Whoever closes a region on the loop counts on it when this returns; others can wait for their uses to
  // end.
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
    // The queue pair is not destroyed before this, so nobody else has its number when the event is handled.
    context_->functions.ack_async_event(&event);
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == 0) return;
  // A descriptor that only fails stays readable for ever.
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
      const auto target = by_number_.find(queue_pair);
      if (target != by_number_.end() && target->second.endpoint != nullptr)
        target->second.endpoint->reset(
            Status(Code::kUnavailable, str(context_->describe(), " reported: ", event_name(type))));
      return;
    }
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      if (const auto target = by_number_.find(queue_pair); target != by_number_.end())
        target->second.group->on_last_receive(target->second.queue_pair);
      return;
    default:
      return;  // the device's state probes ports and GIDs again
  }
}

}  // namespace slime::transport::verbs
