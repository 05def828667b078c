#include "rpc/server.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/reaper.h"
#include "base/str.h"
#include "base/thread.h"
#include "rpc/server/server_impl.h"
#include "rpc/signature.h"

namespace slime::rpc {

namespace {

Status expired_status(const CallInfo& info) {
  return Status(Code::kDeadlineExceeded, str("the deadline of ", info.service, ".", info.method,
                                             " passed before a handler thread was free"));
}

using MethodTable = std::map<std::string, std::shared_ptr<Service::Method>, std::less<>>;

ServiceInfo describe(const std::string& name, const MethodTable& methods) {
  ServiceInfo out{.name = name};
  out.methods.reserve(methods.size());
  for (const auto& [method_name, method] : methods) out.methods.push_back(method->info);
  return out;
}

// Returns the end of a text that refuses an unknown method: the first names that there are.
std::string methods_of(const MethodTable& methods) {
  constexpr std::size_t kShown = 10;
  constexpr std::size_t kShownBytes = 256;  // a refusal with long names stays an error text
  std::string out;
  std::size_t shown = 0;
  for (const auto& [name, method] : methods) {
    if (shown == kShown || out.size() > kShownBytes) return out + ", ...";
    out += str(shown++ == 0 ? "; it has: " : ", ", name);
  }
  return out;
}

}  // namespace

std::vector<ServiceInfo> Server::Impl::services() const {
  const MutexLock lock(mutex_);
  std::vector<ServiceInfo> out;
  out.reserve(services_.size());
  for (const auto& [name, methods] : services_) out.push_back(describe(name, methods));
  return out;
}

Result<ServiceInfo> Server::Impl::service(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto it = services_.find(name);
  if (it == services_.end()) return no_service(name);
  return describe(it->first, it->second);
}

Status Server::Impl::check_signature(std::string_view service, std::string_view method,
                                     std::uint64_t signature) const {
  const MutexLock lock(mutex_);
  const Service::Method* const found = look_up(service, method);
  if (found == nullptr) return {};
  return Signature(found->info).check(service, method, signature);
}

Result<std::shared_ptr<Service::Method>> Server::Impl::find(const CallInfo& info, Found& found) const {
  const MutexLock lock(mutex_);
  const auto service = services_.find(info.service);
  if (service == services_.end()) return no_service(info.service);
  const auto method = service->second.find(info.method);
  if (method == service->second.end()) {
    // An interceptor may refuse to list the methods, so that they are named only without any.
    return Status(Code::kNotFound, str("service '", info.service, "' has no method '", info.method, "'",
                                       interceptors_->empty() ? methods_of(service->second) : ""));
  }
  found = {method->second, version_.load()};
  return method->second;
}

namespace {

// Returns the error for a request with plain bytes to a method that takes msgpack arguments, or
// with arguments to a method that takes plain bytes.
Status called_wrongly(const CallInfo& info) {
  return Status(Code::kUnimplemented,
                str(info.service, ".", info.method,
                    info.raw ? " takes arguments: call() it, with those" : " takes bytes: call_bytes() it"));
}

// Returns the error for a stream to a method that does not stream: its caller would wait for
// messages forever.
Status streamed_wrongly(const CallInfo& info) {
  return Status(Code::kInvalidArgument,
                str(info.service, ".", info.method, " does not stream: call it without a stream"));
}

// Returns whether `bytes` begin at an aligned address. A body inside a frame may begin anywhere.
bool aligned(Bytes bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data()) % Service::kBytesAlignment == 0;
}

}  // namespace

Result<std::shared_ptr<Service::Method>> Server::Impl::admit(Request& request, Found& found, bool has_place) {
  requests_.fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<Service::Method> method;
  if (found.version == version_.load()) method = found.method.lock();
  if (method == nullptr) {
    auto searched = find(request.info(), found);
    if (!searched) return searched;
    method = std::move(*searched);
  }
  if (request.info().raw != method->raw) [[unlikely]]
    return called_wrongly(request.info());
  if (request.info().streams && !method->streams) [[unlikely]]
    return streamed_wrongly(request.info());
  unanswered_.fetch_add(1);
  const unsigned unusual = unusual_.load();
  if (unusual == 0) return method;
  if ((unusual & kDraining) == 0 || method->while_draining || has_place) {
    if ((unusual & kIntercepts) != 0) intercept(request);
    return method;
  }
  refused_.fetch_add(1, std::memory_order_relaxed);
  answered();
  return Status(Code::kUnavailable, "the server is draining: it takes no new requests");
}

void Server::Impl::add_interceptor(std::shared_ptr<ServerInterceptor> interceptor) {
  const MutexLock lock(mutex_);
  auto more = std::make_shared<ServerInterceptors>(*interceptors_);
  more->push_back(std::move(interceptor));
  interceptors_ = std::move(more);
  unusual_.fetch_or(kIntercepts);
}

void Server::Impl::intercept(Request& request) {
  std::shared_ptr<const ServerInterceptors> interceptors;
  {
    const MutexLock lock(mutex_);
    interceptors = interceptors_;
  }
  Interception::add(request, std::move(interceptors), clock_);
}

void Server::Impl::run(Request&& request, Service::Method& method) noexcept {
  executing_.fetch_add(1);
  // Drops exceptions of raw handlers: such a handler owns its request, whose destructor answers
  // kInternal. Typed handlers answer with the exception's text themselves.
  try {
    if (request.info().names->extras == nullptr) [[likely]] {
      method.handler(std::move(request));
    } else {
      Interception::run(std::move(request), method.handler, clock_);
    }
  } catch (...) {
  }
  executing_.fetch_sub(1);
  tell_if_quiet();
}

void Server::Impl::enqueue(Request&& request, std::shared_ptr<Service::Method> method) noexcept {
  std::vector<Job> expired;
  MutexLock lock(mutex_);
  // Removes expired requests from a full queue, so that they do not keep new requests out.
  if (full()) queue_.take_expired(clock_.now(), expired);
  counters_.expired += expired.size();
  for (const Job& job : expired) count_waiting(*job.method, -1);
  Status refusal = prepare_to_wait(*method);
  if (refusal.ok()) {
    count_waiting(*method, 1);
    queue_.push(Job{std::move(request), std::move(method)});
    work_.notify_one();
    lock.unlock();
  } else {
    refused_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    request.refuse(std::move(refusal));
  }
  for (Job& job : expired) job.request.refuse(expired_status(job.request.info()));
}

// Wakes or starts a worker.
Status Server::Impl::prepare_to_wait(const Service::Method& method) {
  if (stopping_) return Status(Code::kUnavailable, "the server has stopped");
  if (idle_workers_ <= queue_.size() + places_.size() + reserved_ && !start_worker())
    return Status(Code::kResourceExhausted, "no handler thread could be started");
  if (full()) {
    return Status(Code::kResourceExhausted,
                  str(options_.queue_limit, " requests wait for a handler thread already"));
  }
  if (waits_enough(method)) {
    return Status(Code::kResourceExhausted, "too many requests of this method wait for its limit already");
  }
  return {};
}

// Starts a worker unless the pool is complete. Returns false if the pool has no worker at all.
bool Server::Impl::start_worker() {
  if (workers_.size() >= options_.workers) return true;
  try {
    workers_.push_back(make_thread([this] { worker(); }));
  } catch (const std::system_error&) {
    return !workers_.empty();
  }
  // counted before the thread runs, so that later requests already see this worker as idle
  ++idle_workers_;
  return true;
}

// Counts the request as a running request of the method until it is answered.
void Server::Impl::enter(Request& request, const std::shared_ptr<Service::Method>& method) {
  if (method->max_running == 0) return;
  ++loads_[method.get()].running;
  track(request, std::make_shared<Slot>(shared_from_this(), method));
}

void Server::Impl::count_waiting(const Service::Method& method, int more) {
  if (method.max_running == 0) return;
  Load& load = loads_[&method];
  load.waiting += static_cast<std::size_t>(more);
  if (load.none()) loads_.erase(&method);
}

void Server::Impl::leave(const Service::Method& method) noexcept {
  const MutexLock lock(mutex_);
  const auto load = loads_.find(&method);
  --load->second.running;
  if (load->second.none()) loads_.erase(load);
  if (queue_.size() > 0 || !places_.empty() || !ready_.empty()) work_.notify_one();
}

void Server::Impl::run_limited(Request&& request, const std::shared_ptr<Service::Method>& method) noexcept {
  bool entered = false;
  {
    const MutexLock lock(mutex_);
    entered = below_limit(*method);
    if (entered) enter(request, method);
  }
  if (entered) return run(std::move(request), *method);
  refused_.fetch_add(1, std::memory_order_relaxed);
  const CallInfo& info = request.info();
  request.refuse(
      Status(Code::kResourceExhausted, str(info.service, ".", info.method, " has ", method->max_running,
                                           " requests already, which is its limit")));
}

void Server::Impl::worker() noexcept {
  worker_of_ = this;
  const auto may_run = [this](const Service::Method& method) {
    mutex_.assert_held();  // by this function
    return below_limit(method);
  };
  MutexLock lock(mutex_);
  for (;;) {
    auto ready = ready_.end();
    Task granted;
    work_.wait(mutex_, [&]() SLIME_REQUIRES(mutex_) {
      ready = find_ready();
      if (stopping_ || ready != ready_.end()) return true;
      const int best = worker_free() ? queue_.best(may_run) : JobQueue::kNone;
      const bool any = best != JobQueue::kNone;
      granted = next_granted(any && !places_first_ ? best - 1 : std::min(best, JobQueue::kNone - 1));
      if (granted) places_first_ = false;
      return any || granted;
    });
    if (granted) {
      lock.unlock();
      granted();
      granted = Task();
      lock.lock();
      continue;
    }
    --idle_workers_;
    if (stopping_) return;
    const bool was_read = ready != ready_.end();
    if (!was_read) places_first_ = true;
    Job job = was_read ? take_ready(ready) : queue_.take(may_run);
    if (!was_read) count_waiting(*job.method, -1);
    const bool expired = job.request.info().deadline <= clock_.now();
    if (expired) ++counters_.expired;
    const bool cancelled = !expired && job.request.cancelled();
    if (cancelled) ++counters_.cancelled;
    if (!expired && !cancelled) enter(job.request, job.method);
    lock.unlock();
    if (cancelled) {
      job.request.refuse(Status(Code::kCancelled, "cancelled before a handler thread was free"));
    } else if (expired) {
      job.request.refuse(expired_status(job.request.info()));
    } else {
      run(std::move(job.request), *job.method);
    }
    job.method.reset();  // without the lock: this may destroy user code of a removed service
    lock.lock();
    ++idle_workers_;
  }
}

Status Server::Impl::drain(Nanos bound) {
  const MutexLock lock(mutex_);
  unusual_.fetch_or(kDraining);
  const auto done = [this] { return quiet(); };
  const TimePoint deadline = deadline_after(steady_clock().now(), bound);
  if (deadline == kNever) {
    quiet_.wait(mutex_, done);
  } else if (!quiet_.wait_until(mutex_, deadline, done)) {
    return Status(Code::kDeadlineExceeded, str(unanswered_.load(), " requests were not answered in time"));
  }
  return {};
}

void Server::Impl::stop() {
  std::vector<Job> left;
  std::map<std::string, Methods, std::less<>> services;
  std::vector<std::thread> workers;
  std::list<Job> ready;
  std::vector<Task> refused;
  {
    const MutexLock lock(mutex_);
    unusual_.fetch_or(kDraining);
    stopping_ = true;
    left = queue_.take_all();
    ready.swap(ready_);
    refused = refuse_places();
    services.swap(services_);
    ++version_;
    workers.swap(workers_);
  }
  work_.notify_all();
  for (Task& task : refused) task();
  for (Job& job : left) job.request.refuse(Status(Code::kUnavailable, "the server has stopped"));
  for (Job& job : ready) job.request.refuse(Status(Code::kUnavailable, "the server has stopped"));
  const auto join = [](std::vector<std::thread>& threads) {
    for (std::thread& thread : threads) thread.join();
  };
  if (!on_worker()) return join(workers);
  // A handler has called stop() on a thread of the pool, which cannot join itself. The task of the
  // reaper thread keeps *this alive until it has joined the workers.
  reap([self = shared_from_this(), workers = std::move(workers), join]() mutable { join(workers); });
}

ServerCounters Server::Impl::counters() const {
  const MutexLock lock(mutex_);
  ServerCounters out = counters_;
  out.requests = requests_.load();
  out.refused = refused_.load();
  out.queued = queue_.size() + places_.size() + ready_.size();
  out.running = unanswered_ - out.queued;
  return out;
}

namespace {

Status check_not_reserved(std::string_view service) {
  if (!service.starts_with(kReservedPrefix)) return {};
  return Status(Code::kInvalidArgument,
                str("service '", service, "': names that begin with '", kReservedPrefix, "' are reserved"));
}

}  // namespace

Server::Server(ServerOptions options, const Clock& clock) : impl_(std::make_shared<Impl>(options, clock)) {}

Server::~Server() { stop(); }

void Server::stop() { impl_->stop(); }
bool Server::on_worker() const { return impl_->on_worker(); }

Status Server::add(Service& service) {
  SLIME_TRY(validate_name("service", service.name()));
  SLIME_TRY(check_not_reserved(service.name()));
  if (service.methods().empty())
    return Status(Code::kInvalidArgument, str("service '", service.name(), "' has no methods"));
  SLIME_TRY(impl_->add(service.name(), service.methods()));
  service.served_ = true;
  return {};
}

Status Server::remove(std::string_view service) {
  SLIME_TRY(check_not_reserved(service));
  return impl_->remove(service);
}
bool Server::serves(std::string_view service, std::string_view method) const {
  return impl_->serves(service, method);
}
Status Server::check_signature(std::string_view service, std::string_view method,
                               std::uint64_t signature) const {
  return impl_->check_signature(service, method, signature);
}
Status Server::drain(Nanos bound) { return impl_->drain(bound); }
void Server::add_interceptor(std::shared_ptr<ServerInterceptor> interceptor) {
  impl_->add_interceptor(std::move(interceptor));
}
ServerCounters Server::counters() const { return impl_->counters(); }

std::shared_ptr<Server::Place> Server::reserve(const CallInfo& info, Found& found,
                                               std::shared_ptr<Account> account, std::uint64_t bytes,
                                               Task granted) {
  return impl_->reserve(info, found, std::move(account), bytes, std::move(granted));
}

void Server::handle(Request&& request, Found& found) noexcept {
  const std::shared_ptr<Place> place = Impl::place_of(request);
  auto admitted = impl_->admit(request, found, place != nullptr);
  if (place != nullptr) impl_->arrived(*place);
  if (!admitted) {
    request.refuse(std::move(admitted).error());
    return;
  }
  request.tracker_ = impl_;
  const std::shared_ptr<Service::Method>& method = *admitted;
  const bool pooled = method->run == Run::kPool;
  // Detaches a body that would be held too long. A body in a receive slot holds a credit of the
  // peer, so only a handler that does not use the body after it returns may get it there. Otherwise
  // two peers that call each other could use up the credits that their replies need.
  if (pooled || !method->borrows || (method->raw && !aligned(request.body()))) request.payload().detach();
  if (pooled) {
    if (place == nullptr || !impl_->make_ready(request, method)) impl_->enqueue(std::move(request), method);
  } else if (method->max_running > 0) {
    impl_->run_limited(std::move(request), method);
  } else {
    impl_->run(std::move(request), *method);
  }
}

}  // namespace slime::rpc
