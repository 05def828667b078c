#include <utility>

#include "base/str.h"
#include "rpc/server/server_impl.h"

// Places for large requests. The body of a large request stays in its caller's memory until a
// worker and memory are free. Until then the request waits as a Place, in order of arrival. A
// granted place reserves a worker (reserved_) until its request runs.
namespace slime::rpc {

std::shared_ptr<Server::Place> Server::Impl::place_of(const Request& request) {
  const Attached* const attached = request.body_.attached();
  return attached == nullptr ? nullptr : std::static_pointer_cast<Place>(attached->place);
}

Server::Place::~Place() {
  bool counted = false;
  {
    const MutexLock lock(impl_->mutex_);
    counted = counted_;
    if (state_ == State::kWaiting) {
      impl_->places_.erase(self_);
      impl_->count_waiting(*method_, -1);
    }
    if (has_worker_) impl_->give_up_worker(*this);
  }
  if (counted) impl_->answered();
}

Server::Place::State Server::Place::state() const {
  const MutexLock lock(impl_->mutex_);
  return state_;
}

void Server::Impl::give_up_worker(Place& place) {
  place.has_worker_ = false;
  --reserved_;
  if (place.method_->max_running > 0) {
    const auto load = loads_.find(place.method_.get());
    --load->second.reserved;
    if (load->second.none()) loads_.erase(load);
  }
  work_.notify_one();
}

std::shared_ptr<Server::Place> Server::Impl::reserve(const CallInfo& info, Found& found,
                                                     std::shared_ptr<Account> account, std::uint64_t bytes,
                                                     Task granted) {
  std::shared_ptr<Service::Method> method;
  Status refusal;
  if (found.version == version_.load()) method = found.method.lock();
  if (method == nullptr) {
    auto searched = find(info, found);
    if (searched) {
      method = std::move(*searched);
    } else {
      refusal = std::move(searched).error();
    }
  }
  if (refusal.ok() && bytes > account->share()) {
    refusal = Status(Code::kResourceExhausted,
                     str("a request of ", bytes, " bytes: a connection has at most ", account->share(),
                         " for its requests and answers (a quarter of the server's memory_bytes)"));
  }
  auto place = std::make_shared<Place>(shared_from_this(), std::move(method), std::move(account), bytes);
  const MutexLock lock(mutex_);
  if (refusal.ok() && draining() && !place->method_->while_draining)
    refusal = Status(Code::kUnavailable, "the server is draining: it takes no new requests");
  if (refusal.ok() && stopping_) refusal = Status(Code::kUnavailable, "the server has stopped");
  if (refusal.ok() && place->pooled_) refusal = prepare_to_wait(*place->method_);
  if (!refusal.ok()) {
    refused_.fetch_add(refusal.code() == Code::kNotFound ? 0 : 1, std::memory_order_relaxed);
    place->state_ = Place::State::kRefused;
    place->refusal_ = std::move(refusal);
    return place;
  }
  place->counted_ = true;
  unanswered_.fetch_add(1);
  // Grants the place at once only if no other request waits.
  const bool first = places_.empty() && (!place->pooled_ || (queue_.size() == 0 && ready_.empty()));
  place->self_ = places_.insert(places_.end(), place.get());
  count_waiting(*place->method_, 1);
  if (first && fits(*place)) {
    static_cast<void>(grant(*place));
    return place;
  }
  place->granted_ = std::move(granted);
  if (workers_.empty()) static_cast<void>(start_worker());  // grants places later
  work_.notify_one();                                       // a worker checks if it may overtake
  return place;
}

// If a worker is free, the method is below its limit and the budget suffices, takes the place's
// memory and returns true. If only the budget does not suffice, registers for on_budget_freed().
bool Server::Impl::fits(Place& place) {
  const Service::Method& method = *place.method_;
  if (place.pooled_ && !worker_free()) return false;
  if (method.max_running > 0 && place.pooled_) {
    const auto load = loads_.find(&method);
    if (load != loads_.end() && load->second.running + load->second.reserved >= method.max_running)
      return false;
  }
  place.held_ = place.account_->take(place.bytes_);
  if (place.held_) return true;
  if (!std::exchange(listens_, true)) tell_when_freed(weak_from_this());
  place.held_ = place.account_->take(place.bytes_);  // bytes may be free meanwhile
  return static_cast<bool>(place.held_);
}

// Grants a place for which fits() has returned true. Returns the place's `granted` task, which the
// caller must call without the lock.
Task Server::Impl::grant(Place& place) {
  places_.erase(place.self_);
  count_waiting(*place.method_, -1);
  place.state_ = Place::State::kGranted;
  if (place.pooled_) {
    place.has_worker_ = true;
    ++reserved_;
    if (place.method_->max_running > 0) ++loads_[place.method_.get()].reserved;
  }
  return std::move(place.granted_);
}

// Grants the first place that fits, among the priorities from the highest down to `lowest`. Returns
// the place's `granted` task, empty if no place fits. Skips a place that does not fit, for instance
// because its connection already holds its share.
Task Server::Impl::next_granted(int lowest) {
  for (int priority = 0; priority <= lowest; ++priority) {
    for (Place* const place : places_) {
      if (static_cast<int>(place->method_->priority) == priority && fits(*place)) return grant(*place);
    }
  }
  return {};
}

// Stops counting the place for drain(): its request has been read, and is counted instead.
void Server::Impl::arrived(Place& place) {
  bool counted = false;
  {
    const MutexLock lock(mutex_);
    counted = std::exchange(place.counted_, false);
  }
  if (counted) answered();
}

// Moves the request to ready_, to run on the worker that its place has reserved. Returns false if
// no worker is reserved for it.
bool Server::Impl::make_ready(Request& request, const std::shared_ptr<Service::Method>& method) {
  const std::shared_ptr<Place> place = place_of(request);
  if (place == nullptr) return false;
  const MutexLock lock(mutex_);
  if (!place->has_worker_ || stopping_) return false;
  ready_.push_back(Job{std::move(request), method});
  work_.notify_one();
  return true;
}

std::list<Job>::iterator Server::Impl::find_ready() {
  return std::find_if(ready_.begin(), ready_.end(),
                      [this](const Job& job) SLIME_REQUIRES(mutex_) { return below_limit(*job.method); });
}

Job Server::Impl::take_ready(std::list<Job>::iterator at) {
  Job out = std::move(*at);
  ready_.erase(at);
  give_up_worker(*place_of(out.request));  // this thread is the reserved worker
  return out;
}

// Refuses all waiting places. Returns their `granted` tasks, which the caller must call without the
// lock.
std::vector<Task> Server::Impl::refuse_places() {
  std::vector<Task> out;
  for (Place* const place : std::exchange(places_, {})) {
    count_waiting(*place->method_, -1);
    place->state_ = Place::State::kRefused;
    place->refusal_ = Status(Code::kUnavailable, "the server has stopped");
    out.push_back(std::move(place->granted_));
  }
  return out;
}

void Server::Impl::on_budget_freed() noexcept {
  const MutexLock lock(mutex_);
  listens_ = false;
  if (!places_.empty()) work_.notify_all();
}

}  // namespace slime::rpc
